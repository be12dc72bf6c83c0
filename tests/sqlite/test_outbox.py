"""A put that joins the caller's transaction: kept with the business rows, or not at all."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
import sqlalchemy.orm

import postroom
from postroom import Policy
from postroom.config import load
from postroom.errors import EngineBusy, InvalidInput, QueueFull, StoreForeign
from postroom.room import Room

#: Long enough for anything that works, and only spent when it does not.
PATIENCE = 60.0


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    """A database of the application's own."""
    path = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(path)) as own:
        own.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
        own.commit()
    return path


@pytest.fixture(name="room")
def _room(path: Path) -> Iterator[Room]:
    with postroom.open(f"sqlite:///{path}?outbox=yes&busy_timeout=300ms") as room:
        yield room


@pytest.fixture(name="own")
def _own(path: Path, room: Room) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, timeout=0.3)) as own:
        yield own


def orders(own: sqlite3.Connection) -> int:
    (count,) = own.execute("SELECT count(*) FROM orders").fetchone()
    return int(count)


def buy(own: sqlite3.Connection) -> None:
    own.execute("INSERT INTO orders (item) VALUES ('tea')")


def test_messages_are_there_when_the_transaction_commits(room: Room, own: sqlite3.Connection) -> None:
    queue = room.queue("emails")
    buy(own)
    put = queue.put({"order": 1}, connection=own, priority="high")
    assert queue.stats().ready == 0
    own.commit()
    delivery = queue.claim(timeout=0)
    assert delivery is not None
    assert (delivery.id, delivery.body, delivery.priority) == (put.id, {"order": 1}, 10)
    assert orders(own) == 1


def test_messages_are_not_there_when_it_rolls_back(room: Room, own: sqlite3.Connection) -> None:
    buy(own)
    room.queue("emails").put({"order": 1}, connection=own)
    room.queue("emails").put_many(range(2_500), connection=own)
    own.rollback()
    assert room.queues() == []
    assert orders(own) == 0


def test_many_messages_and_bodies_of_all_sizes(room: Room, own: sqlite3.Connection) -> None:
    queue = room.queue("files")
    queue.put_many([b"x" * size for size in (0, 1, 1_024, 1_025, 100_000)], connection=own)
    own.commit()
    assert [len(delivery.body) for delivery in queue.claim_many(9, timeout=0)] == [
        0,
        1,
        1_024,
        1_025,
        100_000,
    ]


def test_the_caller_s_own_row_types_do_not_matter(room: Room, own: sqlite3.Connection) -> None:
    def as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
        return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}

    own.row_factory, own.text_factory = as_dict, bytes
    room.queue("emails").put("a", connection=own)
    room.queue("emails").put("b", connection=own, unique_key="b")
    assert own.execute("SELECT 1 AS one").fetchone() == {"one": 1}
    own.commit()
    assert room.queue("emails").stats().ready == 2


def test_ring_wakes_who_waits_after_the_commit(room: Room, own: sqlite3.Connection, path: Path) -> None:
    got: list[object] = []
    with postroom.open(f"sqlite:///{path}?outbox=yes") as other:
        waiter = other.engine.waiter(["emails"])
        waiter.arm()
        waiting = threading.Thread(target=lambda: got.append(waiter.wait(PATIENCE)))
        waiting.start()
        room.queue("emails").put("a", connection=own)
        own.commit()
        room.ring()
        waiting.join()
        waiter.close()
    assert got == [frozenset({"emails"})]


def test_who_waits_notices_without_a_ring(room: Room, own: sqlite3.Connection) -> None:
    """The look that happens every quarter of a second is a net under the bells."""
    with room.engine.waiter(["emails"]) as waiter:
        waiter.arm()
        room.queue("emails").put("a", connection=own)
        own.commit()
        assert waiter.wait(PATIENCE) == {"emails"}


def test_who_waits_notices_an_earlier_due_time_without_a_ring(room: Room, own: sqlite3.Connection) -> None:
    with room.engine.waiter(["emails"]) as waiter:
        waiter.arm()
        room.queue("emails").put("a", connection=own, delay="1h")
        own.commit()
        assert waiter.wait(PATIENCE) == {"emails"}


def test_ids_and_unique_keys_hold_inside_the_transaction(room: Room, own: sqlite3.Connection) -> None:
    queue = room.queue("emails")
    first = queue.put("a", connection=own, unique_key="user:4")
    again = queue.put("b", connection=own, unique_key="user:4")
    assert (again.id, again.created) == (first.id, False)
    own.commit()
    assert queue.put("c", unique_key="user:4").id == first.id


def test_a_full_queue_refuses_and_the_transaction_goes_on(room: Room, own: sqlite3.Connection) -> None:
    queue = room.queue("emails", Policy(capacity=2))
    buy(own)
    queue.put("a", connection=own)
    with pytest.raises(QueueFull):
        queue.put_many(["b", "c"], connection=own)
    own.commit()
    assert (orders(own), queue.stats().ready) == (1, 1)


def test_a_new_queue_gets_the_policy_of_the_configuration(path: Path, tmp_path: Path) -> None:
    config = tmp_path / "postroom.toml"
    config.write_text("max_attempts = 5")
    loaded = load(str(config), url=f"sqlite:///{path}?outbox=yes")
    with postroom.open(config=loaded) as room, contextlib.closing(sqlite3.connect(path)) as own:
        room.queue("emails").put("a", connection=own)
        own.commit()
        assert room.engine.queues()[0].policy.max_attempts == 5


# ---- What cannot be joined --------------------------------------------------------------------------


def test_another_file_is_refused(room: Room, tmp_path: Path) -> None:
    for file in (tmp_path / "other.db", ":memory:"):
        with contextlib.closing(sqlite3.connect(file)) as other, pytest.raises(InvalidInput, match="another"):
            room.queue("emails").put("a", connection=other)


def test_no_transaction_is_refused(room: Room, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as own:
        with pytest.raises(InvalidInput, match="not in a transaction"):
            room.queue("emails").put("a", connection=own)
        own.execute("BEGIN")
        room.queue("emails").put("a", connection=own)
        own.execute("COMMIT")
    assert room.queue("emails").stats().ready == 1


@pytest.mark.parametrize("connection", [3, "sqlite", object()])
def test_what_is_no_connection_is_refused(room: Room, connection: object) -> None:
    with pytest.raises(InvalidInput, match="expected one of sqlite3 or SQLAlchemy"):
        room.queue("emails").put("a", connection=connection)


def test_an_engine_that_cannot_join_says_so() -> None:
    with postroom.open("memory://") as room, pytest.raises(InvalidInput, match="cannot join"):
        room.queue("emails").put("a", connection=object())


def test_a_transaction_that_reads_an_old_moment_is_busy(room: Room, own: sqlite3.Connection) -> None:
    """It cannot write any more; SQLite would say so at the commit at the latest."""
    own.execute("BEGIN")
    orders(own)
    room.queue("emails").put("somebody else's")
    with pytest.raises(EngineBusy, match="older state"):
        room.queue("emails").put("a", connection=own)
    own.rollback()
    room.queue("emails").put("a", connection=own)
    own.commit()
    assert room.queue("emails").stats().ready == 2


def test_a_refused_put_leaves_no_transaction_behind_that_nobody_began(
    room: Room, own: sqlite3.Connection
) -> None:
    room.queue("emails", Policy(capacity=1)).put("full")
    with pytest.raises(QueueFull):
        room.queue("emails").put("a", connection=own)
    assert not own.in_transaction
    room.queue("others").put("b")


def test_a_connection_that_joins_leaves_the_log_alone(room: Room, own: sqlite3.Connection) -> None:
    buy(own)  # in a transaction already
    room.queue("emails").put("a", connection=own)
    own.commit()
    assert own.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)


def test_other_tables_need_the_word_outbox(path: Path) -> None:
    with pytest.raises(StoreForeign, match="outbox=yes"):
        postroom.open(f"sqlite:///{path}")


# ---- SQLAlchemy -------------------------------------------------------------------------------------


@pytest.fixture(name="database")
def _database(path: Path, room: Room) -> Iterator[sqlalchemy.Engine]:
    database = sqlalchemy.create_engine(f"sqlite:///{path}")
    yield database
    database.dispose()


INSERT = sqlalchemy.text("INSERT INTO orders (item) VALUES ('tea')")


def test_a_sqlalchemy_connection(room: Room, database: sqlalchemy.Engine, own: sqlite3.Connection) -> None:
    queue = room.queue("emails")
    with database.begin() as connection:
        connection.execute(INSERT)
        queue.put("kept", connection=connection)
    with pytest.raises(RuntimeError), database.begin() as connection:
        connection.execute(INSERT)
        queue.put("not kept", connection=connection)
        raise RuntimeError
    assert [delivery.body for delivery in queue.claim_many(9, timeout=0)] == ["kept"]
    assert orders(own) == 1


def test_a_sqlalchemy_session(room: Room, database: sqlalchemy.Engine, own: sqlite3.Connection) -> None:
    queue = room.queue("emails")
    with sqlalchemy.orm.Session(database) as session:
        queue.put("first, before anything else", connection=session)
        session.execute(INSERT)
        session.commit()
        session.execute(INSERT)
        queue.put("not kept", connection=session)
        session.rollback()
    assert queue.stats().ready == 1
    assert orders(own) == 1
