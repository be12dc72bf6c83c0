-- What was done, one row a piece of work: see postroom.sqlguard. For PostgreSQL and SQLite.
-- A row is written in the transaction of the work itself, so there is one exactly if that has committed.

CREATE TABLE IF NOT EXISTS processing_log (
    task_name    VARCHAR(200) NOT NULL,
    business_id  VARCHAR(200) NOT NULL,
    processed_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT CURRENT_TIMESTAMP,
    result       TEXT, -- JSON, or NULL
    CONSTRAINT processing_log_once PRIMARY KEY (task_name, business_id)
);

-- To let go of what is older than anybody can repeat: DELETE FROM processing_log WHERE processed_at < …
CREATE INDEX IF NOT EXISTS processing_log_by_age ON processing_log (processed_at);
