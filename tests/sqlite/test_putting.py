"""Puts of several threads that are committed together answer and keep what they would one after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from postroom.engine import ClaimRequest, Engine
from postroom.engines.memory import MemoryEngine
from postroom.engines.sqlite import SqliteEngine
from postroom.engines.sqlite.file import File
from postroom.limits import LAST_DUE
from postroom.model import Accepted, Failure, NewMessage, State
from postroom.policy import Policy
from postroom.testing import ManualClock
from tests.sqlite.outside import PATIENCE, Sleepers

QUEUE = "q"
Call = Sequence[NewMessage]
Answer = Accepted | type[BaseException]


@pytest.fixture(name="clock")
def _clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(name="engine")
def _engine(tmp_path: Path, clock: ManualClock) -> Iterator[SqliteEngine]:
    engine = SqliteEngine(File(str(tmp_path / "store.db")), clock)
    yield engine
    engine.close()


def in_thread(engine: Engine, call: Call) -> Future[Accepted]:
    future: Future[Accepted] = Future()

    def work() -> None:
        try:
            future.set_result(engine.put(QUEUE, call))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def put_together(engine: SqliteEngine, calls: Sequence[Call]) -> list[Answer]:
    """Have these calls wait, in this order, behind a step; then they are one transaction."""
    inside, leave = threading.Event(), threading.Event()

    def block(_: object) -> None:
        inside.set()
        assert leave.wait(PATIENCE)

    blocking = threading.Thread(target=lambda: engine._writer.run(block), daemon=True)
    blocking.start()
    assert inside.wait(PATIENCE)
    futures = []
    with pytest.MonkeyPatch.context() as patch:
        sleepers = Sleepers(patch)
        for place, call in enumerate(calls, 1):
            futures.append(in_thread(engine, call))
            sleepers.wait_for(place)
        leave.set()
        blocking.join(PATIENCE)
        return [_answer(future) for future in futures]


def _answer(future: Future[Accepted]) -> Answer:
    error = future.exception(PATIENCE)
    return future.result() if error is None else type(error)


def put_in_turn(engine: Engine, calls: Sequence[Call]) -> list[Answer]:
    answers: list[Answer] = []
    for call in calls:
        try:
            answers.append(engine.put(QUEUE, call))
        except Exception as error:
            answers.append(type(error))
    return answers


def kept(engine: Engine) -> dict[str, list[tuple[str, bytes, int | None]]]:
    """Every message in its order, by state."""
    return {
        state: [(entry.id, entry.message.body, entry.order) for entry in engine.find(QUEUE, state).entries]
        for state in (State.READY, State.SCHEDULED, State.DEAD)
    }


def message(name: str, id: int = 0, **options: object) -> NewMessage:
    return NewMessage(body=name.encode(), id=f"{id:032x}" if id else "", **options)  # type: ignore[arg-type]  # any


CASES: dict[str, list[Call]] = {
    "plain": [[message("a")], [message("b"), message("c")], [message("d")]],
    "nothing at all": [[], [message("a")], []],
    "large bodies": [[message("a" * 5_000)], [message("b")]],
    "delays and priorities": [[message("a", delay=50)], [message("b", priority=9)], [message("c", delay=9)]],
    "an id twice": [[message("a", 1)], [message("b", 2), message("c", 1)], [message("d", 3)]],
    "an id twice in one call": [[message("a", 1), message("b", 1)], [message("c", 2)]],
    "an id that was there": [[message("a", 7)], [message("again", 99)], [message("b", 8)]],
    "a unique key twice": [[message("a", unique_key="k")], [message("b", unique_key="k")], [message("c")]],
    "more than fits": [[message("a")], [message("b"), message("c"), message("d")], [message("e")]],
    "one refused": [[message("a")], [message("late", delay=LAST_DUE)], [message("b")]],
    "dead on arrival": [[message("a")], [message("b", failure=Failure(type="Bad"))], [message("c")]],
}  # fmt: skip


@pytest.mark.parametrize("calls", CASES.values(), ids=CASES)
def test_calls_kept_together_are_as_good_as_calls_in_turn(
    engine: SqliteEngine, clock: ManualClock, calls: list[Call]
) -> None:
    oracle = MemoryEngine(clock)
    for each in (engine, oracle):
        each.declare(QUEUE, Policy(capacity=4))
        each.put(QUEUE, [message("before", 99)])
    assert put_together(engine, calls) == put_in_turn(oracle, calls)
    assert kept(engine) == kept(oracle)
    assert engine.stats(QUEUE) == oracle.stats(QUEUE)
    oracle.close()


def test_ordinary_calls_are_one_statement_and_not_one_each(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.put(QUEUE, [message("before")])
    said: list[str] = []
    put_together(engine, [])
    with engine._writer._lock:
        engine._writer._link.open().set_trace_callback(said.append)
    put_together(engine, [[message(name)] for name in "abcdef"])
    assert sum(text.startswith("INSERT INTO postroom_message") for text in said) == 1


def test_an_ordinary_put_is_one_row_and_the_books(engine: SqliteEngine) -> None:
    engine.put(QUEUE, [message("before")])
    said: list[str] = []
    engine._writer._link.open().set_trace_callback(said.append)
    engine.put(QUEUE, [message("a")])
    verbs = [text.partition(" ")[0] for text in said]
    assert verbs == ["BEGIN", "PRAGMA", "INSERT", "UPDATE", "COMMIT"]


def test_a_known_id_that_was_purged_is_new_again(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.put(QUEUE, [message("old", 1)])
    monkeypatch.setattr(SqliteEngine, "_clean", lambda self: None)
    assert engine.purge(QUEUE) == 1
    answers = put_together(engine, [[message("new", 1)], [message("other", 2)]])
    assert [answer.puts[0].created for answer in answers if isinstance(answer, Accepted)] == [True, True]
    claimed = engine.claim(QUEUE, ClaimRequest(n=9))
    assert [one.message.body for one in claimed.deliveries] == [b"new", b"other"]
