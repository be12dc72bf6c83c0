-- The elementary steps between the states of a message.

-- ---- notes: what few messages have, in one hash under id .. letter -----------------------------------
-- a: the last attempts, c: the checkpoint, f: the failure, r: the replays

local KEPT_ATTEMPTS = 20

-- Count the work that ends now as an attempt, and keep the newest of them.
local function note_attempt(id, r, error)
  r.attempt = r.attempt + 1
  local kept = has(r.flags, TRIED) and cmsgpack.unpack(call('HGET', NOTES, id .. 'a')) or {}
  if #kept >= KEPT_ATTEMPTS then
    table.remove(kept, 1)
  end
  local began = has(r.flags, STARTED) and r.started_at or r.claimed_at
  kept[#kept + 1] = { r.consumer, began, now, error, extended(r) }
  call('HSET', NOTES, id .. 'a', cmsgpack.pack(kept))
  r.flags = with(with(r.flags, TRIED), CAREFUL)
end

-- ---- waiting -----------------------------------------------------------------------------------------

local function keep_waiting(id, r)
  if r.about.expires then
    call('ZADD', EXPIRES, r.about.expires, id)
  end
  call('HSET', DELIVERY, id, write_record(r))
end

-- Ready, at exactly this place.
local function place(id, r, order)
  r.order = order
  if r.ran_out > 0 or r.strays >= policy.suspect_after then
    r.flags = with(r.flags, SUSPECT)
    call('ZADD', SUSPECTS, order, id)
  else
    r.flags = without(r.flags, SUSPECT)
    call('ZADD', READY, order, id)
  end
  rings = rings + 1
  keep_waiting(id, r)
end

-- Three should know of an earlier due time: one to wake for it, two to stand by.
local function watch(due)
  local first = first_due()
  if not first or due < first then
    alarms = 3
  end
end

-- Ready or scheduled, as the time says.
local function wait_until(id, r, due)
  if due > now then
    r.due = due
    watch(due)
    call('ZADD', DUE, due * 256 + 255 - r.about.priority, id)
    keep_waiting(id, r)
  else
    r.due = now
    place(id, r, due_order(r.about.priority, now))
  end
end

-- ---- leaving -----------------------------------------------------------------------------------------

-- Out of its consumer's hands; the caller says where to.
local function take_back(id, r)
  call('ZREM', LEASE, id)
  lay_down(r)
  free_hand(1)
end

-- The key of a message is free again.
local function release_key(id, about)
  if not about or has(about.flags, HAS_KEY) then
    local key = call('HGET', UNIQUE, 'i' .. id)
    if key then
      call('HDEL', UNIQUE, 'i' .. id)
      if call('HGET', UNIQUE, 'k' .. key) == id then
        call('HDEL', UNIQUE, 'k' .. key)
      end
    end
  end
end

local function remember(id, about)
  local span = about.remember or policy.dedupe_window
  if span > 0 then
    call('ZADD', KNOWN, now + span, id)
  end
end

-- A message that is in no index any more is no more.
local function let_go(id, about)
  call('HDEL', BODY, id)
  call('HDEL', DELIVERY, id)
  call('HDEL', NOTES, id .. 'a', id .. 'c', id .. 'f', id .. 'r')
  release_key(id, about)
end

-- Gone for good; its id is still remembered for as long as was promised.
local function vanish(id, about)
  let_go(id, about)
  remember(id, about)
end

-- Done; `keep_done` lets people look at it for a while.
local function finish(id, r)
  if policy.keep_done > 0 then
    call('ZADD', DONE, now, id)
    call('ZADD', KEPT, now + policy.keep_done, id)
    call('HSET', DELIVERY, id, write_record(r))
    release_key(id, r.about)
    remember(id, r.about)
  else
    vanish(id, r.about)
  end
end

-- The record of a message, made up for one that was never delivered.
local function record_of(id, order)
  local record = call('HGET', DELIVERY, id)
  return record and read_record(record) or new_record(call('HGET', BODY, id), order)
end

-- The dead letters of each group in the order of their deaths: all of one score, by group, moment and id.
local function group_entry(group, died, id)
  return group .. '\0' .. struct.pack('>I8', died) .. id
end

-- Out of the dead letters and of its group.
local function take_dead(id, r)
  call('ZREM', GROUPS, group_entry(r.group, tonumber(call('ZSCORE', DEAD, id)), id))
  call('ZREM', DEAD, id)
end

-- Let go of the dead letters that died first, up to that moment: counted and announced.
local function evict(number, til)
  local ids = call('ZRANGE', DEAD, '-inf', til, 'BYSCORE', 'LIMIT', 0, number)
  for _, id in ipairs(ids) do
    local r = record_of(id)
    take_dead(id, r)
    vanish(id, r.about)
    count('evicted', 1)
    note('evict', id)
  end
  return #ids
end

-- Dead: kept, with its failure, until its retention ends. A failure is { note, signature, group }.
local function bury(id, r, failure)
  local group = failure[3]
  if group == '' then
    group = string.sub(redis.sha1hex(r.about.kind .. '\0' .. failure[2]), 1, 16)
  end
  r.group, r.flags = group, with(r.flags, CAREFUL)
  call('ZADD', DEAD, now, id)
  call('ZADD', GROUPS, 0, group_entry(group, now, id))
  call('HSET', NOTES, id .. 'f', failure[1])
  call('HSET', DELIVERY, id, write_record(r))
  release_key(id, r.about)
  count('dead', 1)
  note('move_to_dlq', id)
  if policy.dead_limit and call('ZCARD', DEAD) > policy.dead_limit then
    return evict(1, now)
  end
  return 0
end

-- ---- asking ------------------------------------------------------------------------------------------

local PLACES = { { READY, 'r' }, { SUSPECTS, 's' }, { DUE, 'd' }, { LEASE, 'p' }, { DEAD, 'x' } }

-- Where a message is, and its score there; nil for none. `last`: only so many of the places count.
local function find_place(id, last)
  for number = 1, last or #PLACES do
    local score = call('ZSCORE', PLACES[number][1], id)
    if score then
      return PLACES[number][2], tonumber(score)
    end
  end
end

-- The waiting or processing message that has this key.
local function holder(key)
  local id = call('HGET', UNIQUE, 'k' .. key)
  return id and find_place(id, 4) and id or nil
end

-- What was purged or kept long enough does not exist; it must not be in the way of a new one.
local function clear_ghost(id)
  call('ZREM', TRASH_READY, id)
  call('ZREM', TRASH_SUSPECTS, id)
  call('ZREM', TRASH_DUE, id)
  call('ZREM', DONE, id)
  let_go(id)
end
