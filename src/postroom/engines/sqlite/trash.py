"""Cleaning up behind a purge or a drop, a little at a time.

Both only say that messages do not exist any more, which takes no time however many there are. Their
rows are removed in portions, each a transaction of its own, so that nobody has to wait for long.
"""

from __future__ import annotations

import sqlite3

from postroom.engines.sqlite.sql import SQL

#: Rows of one portion.
PORTION = 1_000


def clean(connection: sqlite3.Connection) -> bool:
    """Remove one portion of what is there to be removed; whether there may be more."""
    found = connection.execute(SQL["trashed"]).fetchone()
    if found is None:
        return False
    queue, era = found
    wanted = {"queue": queue, "era": era, "limit": PORTION}
    if era is not None:
        removed = connection.execute(SQL["clean_waiting"], wanted).rowcount
    else:
        removed = connection.execute(SQL["clean_queue"], (queue, PORTION)).rowcount
        removed += connection.execute(SQL["clean_ids"], wanted).rowcount
        removed += connection.execute(SQL["clean_log"], wanted).rowcount
    if not removed:
        connection.execute(SQL["untrash"], (queue,))
    return True
