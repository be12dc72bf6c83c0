"""The SQL guard on a real PostgreSQL and on SQLite: duplicates, rollbacks, crashes, two at once."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.orm import Session

from postroom import sqlguard
from postroom.errors import Conflict, InProgress, InvalidInput
from postroom.sqlguard import enter, processing_log

PATIENCE = 60.0


def pay(connection: Connection | Session, invoice: str = "INV-1") -> bool:
    """Whether it was paid now."""
    if enter(connection, "pay", invoice).done:
        return False
    connection.execute(text("INSERT INTO payments VALUES (:invoice)"), {"invoice": invoice})
    return True


def payments(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return sorted(connection.execute(text("SELECT invoice FROM payments")).scalars())


def marks(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return sorted(connection.execute(text("SELECT business_id FROM processing_log")).scalars())


# --- one after the other -------------------------------------------------------------------------


def test_a_duplicate_is_done_and_has_the_result(engine: Engine) -> None:
    with engine.begin() as connection:
        entry = enter(connection, "pay", "INV-1")
        assert not entry.done
        entry.finish({"receipt": 7})
    with engine.begin() as connection:
        entry = enter(connection, "pay", "INV-1")
        assert (entry.done, entry.result) == (True, {"receipt": 7})
        with pytest.raises(Conflict):
            entry.finish({"receipt": 8})


def test_other_work_does_not_meet(engine: Engine) -> None:
    with engine.begin() as connection:
        assert pay(connection, "INV-1")
        assert pay(connection, "INV-2")
        assert not enter(connection, "refund", "INV-1").done
        assert not enter(connection, "pay", 7).done
        assert enter(connection, "pay", "7").done


def test_a_rollback_leaves_no_row(engine: Engine) -> None:
    with pytest.raises(ZeroDivisionError), engine.begin() as connection:
        pay(connection)
        raise ZeroDivisionError
    assert payments(engine) == marks(engine) == []
    with engine.begin() as connection:
        assert pay(connection)
    assert payments(engine) == marks(engine) == ["INV-1"]


# On SQLite a savepoint is the caller's to get right: see SQLAlchemy's page about pysqlite and transactions.
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_rolled_back_savepoint_takes_its_mark_with_it(engine: Engine) -> None:
    with engine.begin() as connection:
        with pytest.raises(ZeroDivisionError), connection.begin_nested():
            pay(connection)
            raise ZeroDivisionError
        assert pay(connection)


def test_a_session_will_do(engine: Engine) -> None:
    for expected in (True, False):
        with Session(engine) as session, session.begin():
            assert pay(session) is expected
    assert payments(engine) == ["INV-1"]


# --- two at once ---------------------------------------------------------------------------------


def lock_wait(engine: Engine) -> bool:
    """Whether somebody waits for somebody else's transaction; SQLite does not tell."""
    if engine.dialect.name == "sqlite":
        return True
    with engine.connect() as connection:
        return bool(connection.execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar())


def eventually(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not within {PATIENCE} s"
        time.sleep(0.01)


class Rival(threading.Thread):
    """Pays the same invoice on a connection of its own."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(daemon=True)
        self._engine = engine
        self.paid: bool | None = None

    def run(self) -> None:
        with self._engine.begin() as connection:
            self.paid = pay(connection)


@pytest.mark.parametrize("commits", [True, False])
def test_a_rival_waits_until_the_first_has_ended(engine: Engine, url: str, commits: bool) -> None:
    patient = create_engine(url, connect_args={"timeout": PATIENCE} if "sqlite" in url else {})
    rival = Rival(patient)
    with engine.connect() as connection:
        transaction = connection.begin()
        assert pay(connection)
        rival.start()
        eventually(lambda: lock_wait(engine))
        assert rival.paid is None
        transaction.commit() if commits else transaction.rollback()
    rival.join(PATIENCE)
    patient.dispose()
    assert rival.paid is not commits
    assert payments(engine) == ["INV-1"]


def test_many_rivals_pay_once(engine: Engine, url: str) -> None:
    patient = create_engine(url, connect_args={"timeout": PATIENCE} if "sqlite" in url else {}, pool_size=10)
    rivals = [Rival(patient) for _ in range(8)]
    for rival in rivals:
        rival.start()
    for rival in rivals:
        rival.join(PATIENCE)
    patient.dispose()
    assert [rival.paid for rival in rivals].count(True) == 1
    assert payments(engine) == ["INV-1"]


def test_who_may_not_wait_longer_is_told_to_come_again(engine: Engine, url: str) -> None:
    impatient = {"timeout": 0.01} if "sqlite" in url else {"options": "-c lock_timeout=10ms"}
    hasty = create_engine(url, connect_args=impatient)
    with engine.begin() as first:
        pay(first)
        with pytest.raises(InProgress), hasty.begin() as second:
            pay(second)
    hasty.dispose()
    assert payments(engine) == ["INV-1"]


def test_an_error_that_is_none_of_ours_stays_what_it_is(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE processing_log"))
    with pytest.raises(Exception, match="processing_log") as raised, engine.begin() as connection:
        pay(connection)
    assert not isinstance(raised.value, InProgress)


# --- crashes -------------------------------------------------------------------------------------


class Payer:
    """A process inside its transaction; see payer.py."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, str(Path(__file__).with_name("payer.py")), url, "INV-1"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def says(self) -> str:
        stdout: IO[str] | Any = self.process.stdout
        return str(stdout.readline()).strip()

    def go_on(self) -> str:
        stdin: IO[str] | Any = self.process.stdin
        stdin.write("\n")
        stdin.flush()
        return self.says()

    def end(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()


@pytest.fixture
def payer(engine: Engine, url: str) -> Iterator[Payer]:
    payer = Payer(url)
    yield payer
    payer.end()


def test_a_killed_process_leaves_neither_work_nor_mark(engine: Engine, payer: Payer, url: str) -> None:
    assert payer.says() == "entered"
    payer.process.kill()
    payer.process.wait(PATIENCE)
    patient = create_engine(url, connect_args={"timeout": PATIENCE} if "sqlite" in url else {})
    with patient.begin() as connection:
        assert pay(connection)
    patient.dispose()
    assert payments(engine) == ["INV-1"]


def test_a_rival_of_a_killed_process_has_its_turn(engine: Engine, payer: Payer, url: str) -> None:
    assert payer.says() == "entered"
    patient = create_engine(url, connect_args={"timeout": PATIENCE} if "sqlite" in url else {})
    rival = Rival(patient)
    rival.start()
    eventually(lambda: lock_wait(engine))
    payer.process.kill()
    rival.join(PATIENCE)
    patient.dispose()
    assert rival.paid is True
    assert payments(engine) == ["INV-1"]


def test_a_process_that_is_not_killed_has_paid(engine: Engine, payer: Payer) -> None:
    assert payer.says() == "entered"
    assert payer.go_on() == "paid"
    with engine.begin() as connection:
        assert not pay(connection)


# --- the table -----------------------------------------------------------------------------------


def shape(engine: Engine) -> dict[str, Any]:
    found = inspect(engine)
    types = engine.dialect.name != "sqlite"  # which has none for a time, only the words it was given
    return {
        "columns": [
            (column["name"], types and str(column["type"]), column["nullable"])
            for column in found.get_columns("processing_log")
        ],
        "key": found.get_pk_constraint("processing_log")["constrained_columns"],
        "indexes": [(each["name"], each["column_names"]) for each in found.get_indexes("processing_log")],
    }


def test_the_shipped_statements_make_the_same_table(engine: Engine) -> None:
    by_sqlalchemy = shape(engine)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE processing_log"))
        for statement in sqlguard.ddl().split(";\n"):
            connection.exec_driver_sql(statement)
    by_hand = shape(engine)
    assert by_hand == by_sqlalchemy
    with engine.begin() as connection:
        assert [pay(connection), pay(connection)] == [True, False]


# --- what is refused -----------------------------------------------------------------------------


def test_a_connection_that_commits_every_statement_is_refused(engine: Engine) -> None:
    with (
        engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection,
        pytest.raises(InvalidInput, match="transaction"),
    ):
        pay(connection)
    assert marks(engine) == []


@pytest.mark.parametrize("id", ["", "x" * 201, None, 1.5, True])
def test_an_id_that_names_nothing_is_refused(engine: Engine, id: Any) -> None:
    with pytest.raises(InvalidInput), engine.begin() as connection:
        enter(connection, "pay", id)


def test_a_result_that_is_no_json_is_refused_and_the_transaction_goes_on(engine: Engine) -> None:
    with engine.begin() as connection:
        entry = enter(connection, "pay", "INV-1")
        with pytest.raises(InvalidInput):
            entry.finish(object())
    assert marks(engine) == ["INV-1"]


def test_the_table_can_become_one_of_the_callers_own(engine: Engine) -> None:
    from sqlalchemy import MetaData

    own = MetaData()
    assert processing_log.to_metadata(own).name in own.tables


def test_without_sqlalchemy_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['sqlalchemy'] = None; import postroom.sqlguard"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtra: pip install 'postroom[sql]'" in run.stderr
