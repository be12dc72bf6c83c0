-- Events of transactions that have committed and are not yet published. For PostgreSQL and SQLite.
CREATE TABLE event_outbox (
    id VARCHAR(32) NOT NULL PRIMARY KEY,
    name VARCHAR(200) NOT NULL,
    headers TEXT NOT NULL,
    body TEXT NOT NULL
);
