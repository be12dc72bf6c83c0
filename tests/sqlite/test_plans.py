"""Every statement goes by an index, those on the way of a message by the one of its state: none scans."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.engines.sqlite.file import File
from postroom.engines.sqlite.sql import SQL

#: Which index each statement about messages goes by.
EXPECTED = {
    "ready": "postroom_ready",
    "head": "postroom_ready",
    "page_ready": "postroom_ready",
    "due": "postroom_scheduled",
    "first_due": "postroom_scheduled",
    "page_scheduled": "postroom_scheduled",
    "count_level": "postroom_ready",
    "next_levels": "postroom_ready",
    "count_retrying": "postroom_scheduled",
    "tally_scheduled": "postroom_scheduled",
    "expired": "postroom_expiring",
    "first_expiry": "postroom_expiring",
    "ripe": "postroom_processing",
    "overdue": "postroom_processing",
    "first_deadline": "postroom_processing",
    "count_overdue": "postroom_processing",
    "page_processing": "postroom_processing",
    "page_done": "postroom_done",
    "forget_done": "postroom_kept",
    "oldest_dead": "postroom_dead",
    "page_dead": "postroom_dead",
    "tally_dead": "postroom_dead",
    "page_group": "postroom_group",
    "tally_group": "postroom_group",
    "groups": "postroom_group",
    "page_task": "postroom_task",
    "by_id": "postroom_by_id",
    "stored": "postroom_by_id",
    "held": "postroom_by_id",
    "exists": "postroom_by_id",
    "known": "postroom_by_id",
    "ack": "postroom_by_id",
    "add_body": "postroom_by_id",
    "add_attempts": "postroom_by_id",
    "holder": "postroom_by_key",
    "clean_waiting": "postroom_ready",
}
#: Parts of statements; a list of few queues or one portion of trash, in their natural order; one row.
NO_PLAN = {"queue_columns", "books", "slot", "plain_values"}
MAY_SCAN = {"queues", "trashed", "write_lock", "next_version"}
#: What is due at the same moment is paged by id although it is claimed by priority.
MAY_SORT = {"page_scheduled"}


@pytest.fixture(name="db", scope="module")
def _db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(File(str(tmp_path_factory.mktemp("plans") / "store.db")).connect()) as db:
        yield db


def plan(db: sqlite3.Connection, name: str) -> list[str]:
    text = SQL[name].replace("(many)", "(?, ?, ?)")
    if names := re.findall(r":(\w+)", text):
        rows = db.execute(f"EXPLAIN QUERY PLAN {text}", dict.fromkeys(names, 1))
    else:
        rows = db.execute(f"EXPLAIN QUERY PLAN {text}", [1] * text.count("?"))
    return [row[3] for row in rows.fetchall()]


@pytest.mark.parametrize("name", sorted(SQL.keys() - NO_PLAN - MAY_SCAN))
def test_no_statement_scans(db: sqlite3.Connection, name: str) -> None:
    assert not [step for step in plan(db, name) if step.startswith("SCAN postroom")]


@pytest.mark.parametrize("name", sorted(SQL.keys() - NO_PLAN - MAY_SORT))
def test_no_statement_sorts(db: sqlite3.Connection, name: str) -> None:
    assert not [step for step in plan(db, name) if "TEMP B-TREE" in step]


@pytest.mark.parametrize(("name", "index"), EXPECTED.items())
def test_each_state_has_its_index(db: sqlite3.Connection, name: str, index: str) -> None:
    steps = [step for step in plan(db, name) if "postroom_message" in step]
    assert any(re.search(rf"INDEX {index}\b", step) for step in steps), steps


def test_every_statement_about_messages_is_accounted_for() -> None:
    about = {name for name, text in SQL.items() if re.search(r"(FROM|UPDATE) postroom_message", text)}
    by_key = {name for name in about if re.search(r"WHERE key (= \?|IN \(many\))$", SQL[name])}
    assert about - by_key - NO_PLAN == EXPECTED.keys() | {"clean_queue"}


def test_what_is_due_together_is_sorted_only_among_itself(db: sqlite3.Connection) -> None:
    assert any("RIGHT PART OF ORDER BY" in step for step in plan(db, "page_scheduled"))


def test_the_indexes_are_still_used_when_one_state_has_most_of_the_rows(tmp_path: Path) -> None:
    """The plan must not depend on how many messages are in which state."""
    add = "INSERT INTO postroom_message (queue, id, state, era, priority, due, put_at, first_due, rank)"
    rows = [(id.to_bytes(16, "big"), id % 100 == 0, id) for id in range(5_000)]
    with contextlib.closing(File(str(tmp_path / "store.db")).connect()) as db:
        db.execute("BEGIN")
        db.executemany(f"{add} VALUES (1, ?, ?, 0, 5, 1, 1, 1, ?)", rows)
        db.execute("COMMIT")
        db.execute("ANALYZE")
        for name in ("ready", "due", "held"):
            assert any(EXPECTED[name] in step for step in plan(db, name))
