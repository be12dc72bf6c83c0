-- Everything a Postroom file holds, and every statement that touches it.
--
-- First the schema, a block for each version: `-- schema: 1000` leads from an empty file to version 1.0
-- (1,000 × major + minor), a later block from the version before it to its own. A minor version only
-- adds, so that an older release can go on working; a major one may change anything.
-- Then the statements, each under its `-- name:`.
--
-- state: 0 scheduled · 1 ready · 2 processing · 3 done · 4 dead. A message is one row, so it is in
-- exactly one state, and each state has its own partial index: what is in another state costs it nothing.
-- era: what waits (state <= 1) in another era than its queue's was purged and does not exist.

-- schema: 1000

CREATE TABLE postroom_queue (
    key          INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again after a drop
    name         TEXT    NOT NULL UNIQUE,
    policy       TEXT    NOT NULL,              -- JSON, as in postroom.toml
    paused       INTEGER NOT NULL DEFAULT 0,
    pause_reason TEXT    NOT NULL DEFAULT '',   -- and until when: see steps/pausing.py
    era          INTEGER NOT NULL DEFAULT 0,    -- a purge begins the next
    seq          INTEGER NOT NULL DEFAULT 0,    -- the last sequence number given out
    last_call    INTEGER NOT NULL,              -- when a call last reached it; its clock never goes back
    grace_until  INTEGER NOT NULL,
    bucket       INTEGER NOT NULL,              -- what the rate allows, as of bucket_at
    bucket_at    INTEGER NOT NULL,
    ready        INTEGER NOT NULL DEFAULT 0,    -- how many there are in each state
    suspects     INTEGER NOT NULL DEFAULT 0,    -- ready too, but counted apart
    scheduled    INTEGER NOT NULL DEFAULT 0,
    processing   INTEGER NOT NULL DEFAULT 0,
    dead         INTEGER NOT NULL DEFAULT 0,
    log_first    INTEGER NOT NULL,              -- the id its first log entry has, and the newest
    log_last     INTEGER NOT NULL,
    counters     TEXT    NOT NULL               -- JSON
);

CREATE TABLE postroom_message (
    key            INTEGER PRIMARY KEY,
    queue          INTEGER NOT NULL,            -- postroom_queue.key
    id             BLOB    NOT NULL,            -- 16 bytes
    state          INTEGER NOT NULL,
    era            INTEGER NOT NULL,
    suspect        INTEGER NOT NULL DEFAULT 0,
    priority       INTEGER NOT NULL,
    rank           INTEGER,                     -- its order; NULL while scheduled
    due            INTEGER NOT NULL,            -- when it is due this time
    expires        INTEGER,
    deadline       INTEGER,
    token          TEXT,                        -- the fence: NULL while nobody holds it
    attempt        INTEGER NOT NULL DEFAULT 0,
    deliveries     INTEGER NOT NULL DEFAULT 0,
    ran_out        INTEGER NOT NULL DEFAULT 0,
    strays         INTEGER NOT NULL DEFAULT 0,
    consumer       TEXT,
    lease          INTEGER,
    claimed_at     INTEGER,
    started_at     INTEGER,
    ack_deadline   INTEGER,
    ended_at       INTEGER,
    kept_until     INTEGER,                     -- done: until when people may look at it
    put_at         INTEGER NOT NULL,
    first_due      INTEGER NOT NULL,
    ack_timeout    INTEGER,
    max_attempts   INTEGER,
    remember       INTEGER,
    kind           TEXT    NOT NULL DEFAULT '',
    content_type   TEXT,                        -- NULL: JSON
    headers        TEXT,                        -- JSON; NULL: none
    correlation_id TEXT,
    unique_key     TEXT,
    fingerprint    TEXT,
    checkpoint     BLOB,
    attempts       TEXT,                        -- JSON
    failure        TEXT,                        -- JSON
    replayed_as    TEXT,                        -- JSON
    body           BLOB                         -- NULL: in postroom_body
);
CREATE UNIQUE INDEX postroom_by_id     ON postroom_message (queue, id);
CREATE UNIQUE INDEX postroom_by_key    ON postroom_message (queue, unique_key) WHERE unique_key IS NOT NULL AND state <= 2;
CREATE INDEX postroom_ready      ON postroom_message (queue, era, suspect, rank, id) WHERE state = 1;
CREATE INDEX postroom_scheduled  ON postroom_message (queue, era, due, priority DESC, id) WHERE state = 0;
CREATE INDEX postroom_expiring   ON postroom_message (queue, era, expires, id) WHERE expires IS NOT NULL AND state <= 1;
CREATE INDEX postroom_processing ON postroom_message (queue, deadline, id) WHERE state = 2;
-- Only what is done has kept_until, and only what is dead a fingerprint. Asking for these instead of the state
-- spares a claim to look at indexes that it cannot change.
CREATE INDEX postroom_done       ON postroom_message (queue, ended_at, id) WHERE kept_until IS NOT NULL;
CREATE INDEX postroom_kept       ON postroom_message (queue, kept_until) WHERE kept_until IS NOT NULL;
CREATE INDEX postroom_dead       ON postroom_message (queue, ended_at, id) WHERE fingerprint IS NOT NULL;
CREATE INDEX postroom_group      ON postroom_message (queue, fingerprint, ended_at, id) WHERE fingerprint IS NOT NULL;
CREATE INDEX postroom_task       ON postroom_message (queue, correlation_id, ended_at, id)
    WHERE fingerprint IS NOT NULL AND correlation_id IS NOT NULL;

-- Bodies above a kilobyte: a row is written again with every change of its state, these are not.
CREATE TABLE postroom_body (message INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TRIGGER postroom_body_goes AFTER DELETE ON postroom_message WHEN old.body IS NULL
BEGIN
    DELETE FROM postroom_body WHERE message = old.key;
END;

CREATE TABLE postroom_remembered (
    queue INTEGER NOT NULL,
    id    BLOB    NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (queue, id)
) WITHOUT ROWID;
CREATE INDEX postroom_remembered_until ON postroom_remembered (queue, until);

-- What a drop or a purge left behind, to be removed a little at a time: waiting messages of eras
-- before `era`, or, where `era` is NULL, all that the queue had.
CREATE TABLE postroom_trash (queue INTEGER PRIMARY KEY, era INTEGER);

CREATE TABLE postroom_log (
    queue INTEGER NOT NULL,
    id    INTEGER NOT NULL,
    entry TEXT    NOT NULL,                     -- JSON
    PRIMARY KEY (queue, id)
) WITHOUT ROWID;

CREATE TABLE postroom_topic (name TEXT PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE postroom_topic_entry (
    topic TEXT    NOT NULL,
    id    INTEGER NOT NULL,
    at    INTEGER NOT NULL,
    data  BLOB    NOT NULL,
    PRIMARY KEY (topic, id)
) WITHOUT ROWID;

CREATE TABLE postroom_record (
    kind    TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    value   BLOB    NOT NULL,
    version INTEGER NOT NULL,
    expires INTEGER,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;
CREATE INDEX postroom_record_expires ON postroom_record (expires) WHERE expires IS NOT NULL;
CREATE TABLE postroom_version (last INTEGER NOT NULL);  -- one row: the last version any record had
INSERT INTO postroom_version VALUES (0);

-- schema: 1001

ALTER TABLE postroom_message ADD COLUMN extended INTEGER;  -- how often this delivery was given more time; NULL: never

-- name: queue_columns
key, name, policy, paused, pause_reason, era, seq, last_call, grace_until, bucket, bucket_at,
ready, suspects, scheduled, processing, dead, log_first, log_last, counters;

-- name: queue
SELECT {queue_columns} FROM postroom_queue WHERE name = ?;

-- name: queues
SELECT {queue_columns} FROM postroom_queue ORDER BY name;

-- name: make_queue
INSERT INTO postroom_queue (name, policy, last_call, grace_until, bucket, bucket_at, log_first, log_last, counters)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: save_queue
UPDATE postroom_queue SET policy = ?, paused = ?, pause_reason = ?, era = ?, grace_until = ?, {books} WHERE key = ?;

-- name: save_books  the same, for what almost every call changes
UPDATE postroom_queue SET {books} WHERE key = ?;

-- name: books
seq = ?, last_call = ?, bucket = ?, bucket_at = ?, ready = ?, suspects = ?, scheduled = ?, processing = ?, dead = ?,
log_last = ?, counters = ?;

-- name: drop_queue
DELETE FROM postroom_queue WHERE key = ?;

-- name: write_lock  takes the lock before anything is read, in a transaction that somebody else has begun
UPDATE postroom_version SET last = last;

-- Keeping messages -----------------------------------------------------------------------------------

-- name: add
INSERT INTO postroom_message
    (queue, id, state, era, priority, rank, due, expires, ended_at, put_at, first_due, ack_timeout, max_attempts, remember,
     kind, content_type, headers, correlation_id, unique_key, fingerprint, failure, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_plain  the same for messages with nothing special, all or none: binding a NULL takes its time
INSERT INTO postroom_message (queue, id, state, era, priority, rank, due, put_at, first_due, kind, body)
VALUES {plain_values};

-- name: plain_values
(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_body
INSERT INTO postroom_body (message, body) SELECT key, ? FROM postroom_message WHERE queue = ? AND id = ?;

-- name: add_attempts  those of a new message that had some elsewhere, as only few have
UPDATE postroom_message SET attempt = ?, attempts = ? WHERE queue = ? AND id = ?;

-- name: body
SELECT body FROM postroom_body WHERE message = ?;

-- name: lay
UPDATE postroom_message SET
    state = ?, era = ?, suspect = ?, rank = ?, due = ?, deadline = ?, token = ?, attempt = ?, deliveries = ?,
    ran_out = ?, strays = ?, consumer = ?, lease = ?, claimed_at = ?, started_at = ?, ack_deadline = ?, ended_at = ?,
    kept_until = ?, fingerprint = ?, checkpoint = ?, attempts = ?, failure = ?, extended = ?
WHERE key = ?;

-- name: update
UPDATE postroom_message SET
    deadline = ?, started_at = ?, ack_deadline = ?, checkpoint = ?, replayed_as = ?, extended = ?
WHERE key = ?;

-- name: lease
UPDATE postroom_message SET
    state = 2, token = ?, consumer = ?, lease = ?, claimed_at = ?, started_at = ?, ack_deadline = ?, deadline = ?,
    deliveries = deliveries + 1
WHERE key IN (many);

-- name: ack  the token is the fence
DELETE FROM postroom_message
WHERE queue = ? AND state = 2 AND token = ? AND remember IS NULL AND id IN (many) RETURNING id;

-- name: let_go
DELETE FROM postroom_message WHERE key = ?;

-- name: remember
INSERT OR REPLACE INTO postroom_remembered (queue, id, until) VALUES (?, ?, ?);

-- name: forget_done
DELETE FROM postroom_message WHERE key IN (
    SELECT key FROM postroom_message WHERE queue = ? AND kept_until IS NOT NULL AND kept_until <= ? ORDER BY kept_until LIMIT ?
);

-- name: forget_ids
DELETE FROM postroom_remembered WHERE queue = :queue AND id IN (
    SELECT id FROM postroom_remembered WHERE queue = :queue AND until <= :now ORDER BY until LIMIT :limit
);

-- Finding one message --------------------------------------------------------------------------------

-- name: slot
SELECT key, id, state, suspect, priority, rank, due, expires, deadline, token, attempt, deliveries, ran_out, strays,
    consumer, lease, claimed_at, started_at, ack_deadline, ended_at, kept_until, put_at, first_due, ack_timeout,
    max_attempts, remember, kind, content_type, headers, correlation_id, unique_key, checkpoint, attempts, failure,
    replayed_as, extended, body
FROM postroom_message;

-- name: by_id
{slot} WHERE queue = ? AND id = ? AND (state > 1 OR era = ?);

-- name: stored  all that is kept of one; a large body lies in a table of its own
SELECT postroom_message.*, b.body AS "postroom_body.body" FROM postroom_message
JOIN postroom_queue AS q ON q.key = queue LEFT JOIN postroom_body AS b ON b.message = postroom_message.key
WHERE q.name = ? AND id = ? AND (state > 1 OR postroom_message.era = q.era);

-- name: held  the token is the fence
{slot} WHERE queue = ? AND id = ? AND state = 2 AND token = ?;

-- name: exists
SELECT 1 FROM postroom_message WHERE queue = ? AND id = ? AND state <> 3 AND (state > 1 OR era = ?);

-- name: known  and whether it is alive: what was purged, or kept long enough, does not exist
SELECT key, id, CASE state WHEN 3 THEN kept_until > ? ELSE state > 1 OR era = ? END
FROM postroom_message WHERE queue = ? AND id IN (many);

-- name: remembers
SELECT 1 FROM postroom_remembered WHERE queue = ? LIMIT 1;

-- name: recalled
SELECT id FROM postroom_remembered WHERE until > ? AND queue = ? AND id IN (many);

-- name: holder  and whether it is alive
SELECT key, id, state = 2 OR era = ? FROM postroom_message WHERE queue = ? AND unique_key = ? AND state <= 2;

-- Finding by order and time --------------------------------------------------------------------------

-- name: ready
{slot} WHERE queue = ? AND era = ? AND suspect = ? AND state = 1 ORDER BY rank, id;

-- name: head
SELECT rank, id, priority, put_at FROM postroom_message
WHERE queue = ? AND era = ? AND suspect = ? AND state = 1 AND rank >= ? ORDER BY rank, id LIMIT 1;

-- name: ripe
SELECT
    EXISTS (SELECT 1 FROM postroom_message WHERE queue = :queue AND state = 2 AND deadline <= :now),
    EXISTS (SELECT 1 FROM postroom_message WHERE queue = :queue AND era = :era AND state = 0 AND due <= :now),
    EXISTS (SELECT 1 FROM postroom_message
            WHERE queue = :queue AND era = :era AND expires IS NOT NULL AND state <= 1 AND expires <= :now);

-- name: overdue
{slot} WHERE queue = ? AND state = 2 AND deadline <= ? ORDER BY deadline, id LIMIT ?;

-- name: due
{slot} WHERE queue = ? AND era = ? AND state = 0 AND due <= ? ORDER BY due, priority DESC, id LIMIT ?;

-- name: expired
{slot} WHERE queue = ? AND era = ? AND expires IS NOT NULL AND state <= 1 AND expires <= ? ORDER BY expires, id LIMIT ?;

-- name: oldest_dead
{slot} WHERE queue = ? AND fingerprint IS NOT NULL AND ended_at <= ? ORDER BY ended_at, id LIMIT ?;

-- name: first_deadline
SELECT deadline FROM postroom_message WHERE queue = ? AND state = 2 ORDER BY deadline LIMIT 1;

-- name: first_due
SELECT due FROM postroom_message WHERE queue = ? AND era = ? AND state = 0 ORDER BY due LIMIT 1;

-- name: first_expiry
SELECT expires FROM postroom_message
WHERE queue = ? AND era = ? AND expires IS NOT NULL AND state <= 1 ORDER BY expires LIMIT 1;

-- name: count_overdue
SELECT count(*) FROM postroom_message WHERE queue = ? AND state = 2 AND deadline <= ?;

-- Pages: the key and the id of what comes behind a pair of both ----------------------------------------

-- name: page_ready
SELECT rank, id FROM postroom_message
WHERE queue = :queue AND era = :era AND suspect = :suspect AND state = 1 AND (rank, id) > (:key, :id)
ORDER BY rank, id LIMIT :limit;

-- name: page_scheduled
SELECT due, id FROM postroom_message
WHERE queue = :queue AND era = :era AND state = 0 AND (due, id) > (:key, :id) ORDER BY due, id LIMIT :limit;

-- name: page_processing
SELECT deadline, id FROM postroom_message
WHERE queue = :queue AND state = 2 AND (deadline, id) > (:key, :id) ORDER BY deadline, id LIMIT :limit;

-- name: page_done
SELECT ended_at, id FROM postroom_message
WHERE queue = :queue AND kept_until IS NOT NULL AND (ended_at, id) > (:key, :id) AND kept_until > :now
ORDER BY ended_at, id LIMIT :limit;

-- name: page_dead
SELECT ended_at, id FROM postroom_message
WHERE queue = :queue AND fingerprint IS NOT NULL AND (ended_at, id) > (:key, :id) ORDER BY ended_at, id LIMIT :limit;

-- name: page_group
SELECT ended_at, id FROM postroom_message
WHERE queue = :queue AND fingerprint = :group AND fingerprint IS NOT NULL AND (ended_at, id) > (:key, :id)
  AND (:correlation_id IS NULL OR correlation_id = :correlation_id)
ORDER BY ended_at, id LIMIT :limit;

-- name: page_task
SELECT ended_at, id FROM postroom_message
WHERE queue = :queue AND correlation_id = :correlation_id AND fingerprint IS NOT NULL AND (ended_at, id) > (:key, :id)
ORDER BY ended_at, id LIMIT :limit;

-- Groups: counted in their index, which the step that buries keeps; no letter is looked at ----------------

-- name: tally_scheduled  each of these goes over one index, and over so many rows of it
SELECT count(*) FROM (
    SELECT 1 FROM postroom_message
    WHERE queue = :queue AND era = :era AND state = 0 AND due >= :from AND due < :until LIMIT :limit
);

-- name: count_level  a part of the order
SELECT count(*) FROM (
    SELECT 1 FROM postroom_message
    WHERE queue = :queue AND era = :era AND suspect = :suspect AND state = 1 AND rank >= :from AND rank < :until LIMIT :limit
);

-- name: next_levels
SELECT rank, priority FROM postroom_message
WHERE queue = :queue AND era = :era AND suspect = :suspect AND state = 1 ORDER BY rank, id LIMIT :limit;

-- name: count_retrying  among those that are due first
SELECT count(*) FROM (
    SELECT attempt FROM postroom_message
    WHERE queue = :queue AND era = :era AND state = 0 ORDER BY due, priority DESC, id LIMIT :limit
) WHERE attempt > 0;

-- name: tally_dead
SELECT count(*) FROM (
    SELECT 1 FROM postroom_message
    WHERE queue = :queue AND fingerprint IS NOT NULL AND ended_at >= :from AND ended_at < :until LIMIT :limit
);

-- name: tally_group
SELECT count(*) FROM (
    SELECT 1 FROM postroom_message
    WHERE queue = :queue AND fingerprint = :group AND fingerprint IS NOT NULL
      AND ended_at >= :from AND ended_at < :until LIMIT :limit
);

-- name: groups
SELECT fingerprint, count(*), min(ended_at), max(ended_at), (
    SELECT id FROM postroom_message AS newest
    WHERE newest.queue = :queue AND newest.fingerprint = postroom_message.fingerprint AND newest.fingerprint IS NOT NULL
    ORDER BY newest.ended_at DESC, newest.id DESC LIMIT 1)
FROM postroom_message WHERE queue = :queue AND fingerprint IS NOT NULL AND fingerprint > :after
GROUP BY fingerprint ORDER BY fingerprint LIMIT :limit;

-- Trash: what a purge or a drop left behind ------------------------------------------------------------

-- name: trash
INSERT OR REPLACE INTO postroom_trash (queue, era) VALUES (?, ?);

-- name: trashed
SELECT queue, era FROM postroom_trash LIMIT 1;

-- name: clean_waiting
DELETE FROM postroom_message WHERE key IN (
    SELECT key FROM postroom_message WHERE queue = :queue AND era < :era AND state = 1 LIMIT :limit
) OR key IN (
    SELECT key FROM postroom_message WHERE queue = :queue AND era < :era AND state = 0 LIMIT :limit
);

-- name: clean_queue
DELETE FROM postroom_message WHERE key IN (SELECT key FROM postroom_message WHERE queue = ? LIMIT ?);

-- name: clean_ids
DELETE FROM postroom_remembered WHERE queue = :queue AND id IN (
    SELECT id FROM postroom_remembered WHERE queue = :queue LIMIT :limit
);

-- name: clean_log
DELETE FROM postroom_log WHERE queue = :queue AND id IN (SELECT id FROM postroom_log WHERE queue = :queue LIMIT :limit);

-- name: untrash
DELETE FROM postroom_trash WHERE queue = ?;

-- History, topics, records -----------------------------------------------------------------------------

-- name: write_log
INSERT INTO postroom_log (queue, id, entry) VALUES (?, ?, ?);

-- name: prune_log
DELETE FROM postroom_log WHERE queue = ? AND id <= ?;

-- name: log_before
SELECT id - 1 FROM postroom_log WHERE queue = ? ORDER BY id LIMIT 1;

-- name: read_log
SELECT id, entry FROM postroom_log WHERE queue = ? AND id > ? ORDER BY id LIMIT ?;

-- name: topic
SELECT last FROM postroom_topic WHERE name = ?;

-- name: topics
SELECT name FROM postroom_topic WHERE name > ? ORDER BY name LIMIT ?;

-- name: save_topic
INSERT OR REPLACE INTO postroom_topic (name, last) VALUES (?, ?);

-- name: publish
INSERT INTO postroom_topic_entry (topic, id, at, data) VALUES (?, ?, ?, ?);

-- name: prune_topic
DELETE FROM postroom_topic_entry WHERE topic = :topic AND id <= max(:beyond, coalesce(
    (SELECT id - 1 FROM postroom_topic_entry WHERE topic = :topic AND at > :old ORDER BY id LIMIT 1), :last));

-- name: topic_before
SELECT id - 1 FROM postroom_topic_entry WHERE topic = ? ORDER BY id LIMIT 1;

-- name: read_topic
SELECT id, at, data FROM postroom_topic_entry WHERE topic = ? AND id > ? ORDER BY id LIMIT ?;

-- name: record
SELECT key, value, version, expires FROM postroom_record
WHERE kind = ? AND key = ? AND (expires IS NULL OR expires > ?);

-- name: records
SELECT key, value, version, expires FROM postroom_record
WHERE kind = ? AND key > ? AND (expires IS NULL OR expires > ?) ORDER BY key LIMIT ?;

-- name: next_version
UPDATE postroom_version SET last = last + 1 RETURNING last;

-- name: put_record
INSERT OR REPLACE INTO postroom_record (kind, key, value, version, expires) VALUES (?, ?, ?, ?, ?);

-- name: delete_record
DELETE FROM postroom_record WHERE kind = ? AND key = ?;

-- name: prune_records
DELETE FROM postroom_record WHERE (kind, key) IN (
    SELECT kind, key FROM postroom_record WHERE expires IS NOT NULL AND expires <= ? ORDER BY expires LIMIT ?
);
