"""What is special about messages in a file: its URL, its rows, its clock, and the processes around it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import postroom
from postroom.engine import ClaimRequest
from postroom.engines.sqlite import SqliteEngine, doorbell, finding
from postroom.engines.sqlite.doorbell import Doorbell
from postroom.engines.sqlite.file import File
from postroom.engines.sqlite.folder import stamp_of
from postroom.errors import Closed, ConfigError, EngineBusy, InvalidInput
from postroom.model import Accepted, Failure, NewMessage, Outcome, Receipt, Settlement, State
from postroom.policy import Policy, Rate
from postroom.testing import ManualClock
from tests.sqlite.outside import eventually

#: Long enough for anything that works, and only spent when it does not.
PATIENCE = 60.0
QUEUE = "emails"


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture(name="clock")
def _clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(name="engine")
def _engine(path: Path, clock: ManualClock) -> Iterator[SqliteEngine]:
    engine = SqliteEngine(File(str(path)), clock)
    yield engine
    engine.close()


def put(engine: SqliteEngine, *messages: NewMessage) -> Accepted:
    return engine.put(QUEUE, messages)


def rows(path: Path, table: str) -> int:
    with contextlib.closing(sqlite3.connect(path)) as db:
        (count,) = db.execute(f"SELECT count(*) FROM postroom_{table}").fetchone()
        return int(count)


# ---- The URL ----------------------------------------------------------------------------------------


def test_a_relative_path_is_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with postroom.open("sqlite:///jobs%20of%20today.db") as room:
        room.queue(QUEUE).put("a")
        # Wherever the program goes, the store stays where it was opened.
        monkeypatch.chdir("/")
        room.queue(QUEUE).put("b")
        assert (tmp_path / "jobs of today.db").exists()


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("sqlite://jobs.db", "takes a path"),
        ("sqlite://", "takes a path"),
        ("sqlite:///", "takes a path"),
        ("sqlite:///jobs.db#now", "takes a path"),
        ("sqlite:///jobs.db?sync=full", "no option 'sync'"),
        ("sqlite:///jobs.db?synchronous=off", "synchronous"),
        ("sqlite:///jobs.db?busy_timeout=soon", "busy_timeout"),
        ("sqlite:///jobs.db?outbox=perhaps", "outbox"),
    ],
)
def test_a_url_that_makes_no_sense(
    url: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ConfigError, InvalidInput), match=complaint):
        postroom.open(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "level"), [("", 2), ("?synchronous=normal", 1), ("?synchronous=extra", 3)]
)
def test_how_safe_a_commit_is(path: Path, option: str, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    levels = []
    connect = File.connect

    def noting(self: File, *, readonly: bool = False) -> sqlite3.Connection:
        connection = connect(self, readonly=readonly)
        levels.append(connection.execute("PRAGMA synchronous").fetchone())
        return connection

    monkeypatch.setattr(File, "connect", noting)
    with postroom.open(f"sqlite:///{path}{option}") as room:
        room.queue(QUEUE).put("a")
    assert set(levels) == {(level,)}


def test_nothing_is_left_beside_a_closed_store(path: Path) -> None:
    with postroom.open(f"sqlite:///{path}") as room:
        room.queue(QUEUE).put("a")
        assert room.queue(QUEUE).claim(timeout=0)
        assert room.queue(QUEUE).claim(timeout=0.01) is None
    assert [file.name for file in path.parent.iterdir()] == [path.name]


# ---- Rows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1_024, 1_025, 300_000])
def test_a_body_is_kept_and_goes_with_its_message(engine: SqliteEngine, path: Path, size: int) -> None:
    body = os.urandom(size)
    put(engine, NewMessage(body=body))
    assert rows(path, "body") == (size > 1_024)
    (delivery,) = engine.claim(QUEUE, ClaimRequest()).deliveries
    assert delivery.message.body == body
    (entry,) = engine.find(QUEUE, State.PROCESSING).entries
    assert entry.message.body == body
    engine.settle(QUEUE, [Settlement(delivery.receipt)])
    assert (rows(path, "message"), rows(path, "body")) == (0, 0)


def test_purged_messages_leave_no_rows(engine: SqliteEngine, path: Path) -> None:
    for _ in range(3):
        put(engine, *(NewMessage(body=b"x" * 2_000, delay=number % 2) for number in range(1_000)))
    assert engine.purge(QUEUE) == 3_000
    assert [rows(path, table) for table in ("message", "body", "trash")] == [0, 0, 0]


def test_a_dropped_queue_leaves_no_rows(engine: SqliteEngine, path: Path) -> None:
    engine.declare(QUEUE, Policy(keep_done="1h", dedupe_window="1h"))
    put(engine, *(NewMessage(body=b"x" * 2_000) for _ in range(1_000)))
    deliveries = engine.claim(QUEUE, ClaimRequest(n=100)).deliveries
    engine.settle(QUEUE, [Settlement(delivery.receipt) for delivery in deliveries[:50]])
    engine.pause(QUEUE)
    put(engine, NewMessage(failure=Failure(type="Boom")))
    engine.drop(QUEUE, force=True)
    tables = ("queue", "message", "body", "remembered", "log", "trash")
    assert [rows(path, table) for table in tables] == [0] * 6


def unclean(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on whoever purges ends before it has cleaned up."""
    monkeypatch.setattr(engine, "_clean", lambda: None)


def test_what_was_purged_does_not_exist_before_it_is_cleaned_up(
    engine: SqliteEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unclean(engine, monkeypatch)
    message = NewMessage(body=b"first", unique_key="key", ttl=60_000)
    put(engine, message, NewMessage(delay=1_000))
    engine.purge(QUEUE)
    assert engine.get(QUEUE, [message.id]) == [None]
    assert engine.find(QUEUE, State.READY).entries == engine.find(QUEUE, State.SCHEDULED).entries == []
    assert engine.claim(QUEUE, ClaimRequest()).deliveries == []
    assert engine.stats(QUEUE).depth == 0
    # Both the id and the key are free.
    assert put(engine, NewMessage(unique_key="key")).puts[0].created
    assert put(engine, NewMessage(id=message.id, body=b"second")).puts[0].created
    assert len(engine.claim(QUEUE, ClaimRequest(n=9)).deliveries) == 2


def test_a_sweep_cleans_up_behind_a_purge_that_was_cut_off(
    engine: SqliteEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unclean(engine, monkeypatch)
    put(engine, *(NewMessage() for _ in range(1_000)))
    put(engine, *(NewMessage() for _ in range(1_000)))
    engine.purge(QUEUE)
    assert rows(path, "message") == 2_000
    sweeps = 0
    while engine.sweep(QUEUE).full:
        sweeps += 1
    assert (rows(path, "message"), rows(path, "trash")) == (0, 0)
    assert sweeps >= 2  # each of them short


def test_what_came_after_a_purge_is_not_cleaned_up(
    engine: SqliteEngine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(engine, *(NewMessage() for _ in range(10)))
    held = engine.claim(QUEUE, ClaimRequest(n=2)).deliveries
    unclean(engine, monkeypatch)
    engine.purge(QUEUE)
    put(engine, NewMessage())
    engine.settle(QUEUE, [Settlement(held[0].receipt, postroom.model.Verb.RELEASE)])
    while engine.sweep(QUEUE).full:
        pass
    assert rows(path, "message") == 3
    assert (engine.stats(QUEUE).ready, engine.stats(QUEUE).processing) == (2, 1)


# ---- Words that no row can hold ----------------------------------------------------------------------


@pytest.mark.parametrize("whose", ["own", "another's"])
def test_a_claim_that_saw_nothing_expire_notices_what_comes_later(
    engine: SqliteEngine, clock: ManualClock, path: Path, whose: str
) -> None:
    put(engine, NewMessage(), NewMessage())
    (first,) = engine.claim(QUEUE, ClaimRequest()).deliveries
    another = SqliteEngine(File(str(path)), clock)
    put(engine if whose == "own" else another, NewMessage(priority=0, ttl=1_000))
    another.close()
    clock.advance("2s")
    engine.turn(QUEUE, [Settlement(first.receipt)], (), ClaimRequest())
    stats = engine.stats(QUEUE)
    assert (stats.ready, stats.processing, stats.dead, stats.counters["expired"]) == (0, 1, 1, 1)


def test_receipts_of_nonsense_change_nothing(engine: SqliteEngine) -> None:
    put(engine, NewMessage())
    (delivery,) = engine.claim(QUEUE, ClaimRequest()).deliveries
    for id, token in [("", ""), ("no id", "x"), ("ab", delivery.token), (delivery.message.id, "\0")]:
        (outcome,) = engine.settle(QUEUE, [Settlement(Receipt(QUEUE, id, token))])
        assert outcome is not Outcome.OK
    assert engine.stats(QUEUE).processing == 1


@pytest.mark.parametrize("text", ["\ud800", "x\udfff"])
def test_text_that_is_not_utf8_is_refused(engine: SqliteEngine, text: str) -> None:
    put(engine, NewMessage())
    for call in (
        lambda: engine.settle(QUEUE, [Settlement(Receipt(QUEUE, "0" * 32, text))]),
        lambda: engine.find(QUEUE, State.DEAD, group=text),
        lambda: engine.records.get("kind", text),
        lambda: engine.records.delete("kind", text),
        lambda: engine.records.list("kind", after=text),
    ):
        with pytest.raises(InvalidInput):
            call()
    assert engine.stats(QUEUE).ready == 1


def test_a_cursor_beyond_all_numbers_is_no_error(engine: SqliteEngine) -> None:
    beyond = str(2**70)
    for call in (
        lambda: engine.find(QUEUE, State.READY, cursor=f"{beyond}:{'0' * 32}"),
        lambda: engine.log(QUEUE, after=beyond),
        lambda: engine.read("topic", after=beyond),
    ):
        with contextlib.suppress(InvalidInput):
            assert call().entries == []


# ---- The clock --------------------------------------------------------------------------------------


def test_a_clock_that_is_a_little_behind_another_s_holds_still(
    engine: SqliteEngine, clock: ManualClock, path: Path
) -> None:
    put(engine, NewMessage(delay=20_000))
    clock.advance("20s")
    engine.pause(QUEUE)
    behind = ManualClock(clock() - 5_000)
    other = SqliteEngine(File(str(path)), behind)
    other.resume(QUEUE)
    assert len(other.claim(QUEUE, ClaimRequest()).deliveries) == 1
    other.close()


def test_a_clock_that_was_far_ahead_for_a_moment_does_not_stop_time(path: Path, clock: ManualClock) -> None:
    year = 365 * 86_400_000
    wrong = SqliteEngine(File(str(path)), ManualClock(clock() + year))
    put(wrong, NewMessage())
    wrong.close()
    engine = SqliteEngine(File(str(path)), clock)
    put(engine, NewMessage(delay=1_000))
    assert len(engine.claim(QUEUE, ClaimRequest(n=9)).deliveries) == 1
    clock.advance("1s")
    assert len(engine.claim(QUEUE, ClaimRequest(n=9)).deliveries) == 1
    engine.close()


def once_far_ahead(path: Path, clock: ManualClock, span: str, call: Callable[[SqliteEngine], object]) -> None:
    """One call by somebody whose clock is so far ahead."""
    ahead = ManualClock(clock())
    ahead.advance(span)
    wrong = SqliteEngine(File(str(path)), ahead)
    call(wrong)
    wrong.close()


def test_a_clock_that_was_far_ahead_makes_nothing_early_later(path: Path, clock: ManualClock) -> None:
    once_far_ahead(path, clock, "25h", put)
    engine = SqliteEngine(File(str(path)), clock)
    put(engine, NewMessage(delay=20 * 3_600_000))
    clock.advance("2h")  # the wrong time is less than a day ahead by now
    assert engine.claim(QUEUE, ClaimRequest(n=9)).deliveries == []
    engine.close()


def test_a_clock_that_was_far_ahead_does_not_keep_the_dead_alive(path: Path, clock: ManualClock) -> None:
    engine = SqliteEngine(File(str(path)), clock)
    put(engine, NewMessage())
    engine.claim(QUEUE, ClaimRequest(lease=30_000))
    once_far_ahead(path, clock, "48h", put)
    for _ in range(12):
        clock.advance("5s")
        engine.sweep(QUEUE)
    assert engine.stats(QUEUE).ready == 1
    engine.close()


def test_a_clock_that_was_far_ahead_does_not_use_up_the_rate(path: Path, clock: ManualClock) -> None:
    engine = SqliteEngine(File(str(path)), clock)
    engine.declare(QUEUE, Policy(rate="1/s"))
    put(engine, NewMessage(), NewMessage())
    once_far_ahead(path, clock, "72h", lambda wrong: wrong.claim(QUEUE, ClaimRequest()))
    engine.claim(QUEUE, ClaimRequest())
    clock.advance("2s")
    assert len(engine.claim(QUEUE, ClaimRequest()).deliveries) == 1
    engine.close()


def test_nor_a_shared_rate(path: Path, clock: ManualClock) -> None:
    def take(engine: SqliteEngine) -> int:
        return engine.records.take("rate", "all", 1, rate=Rate.parse("1/s"), burst=1)

    once_far_ahead(path, clock, "72h", take)
    engine = SqliteEngine(File(str(path)), clock)
    assert [take(engine), take(engine)] == [0, 1_000]
    engine.close()


@contextlib.contextmanager
def held_up(path: Path, clock: ManualClock, span: str) -> Iterator[None]:
    """While the block waits for the store, which another holds, this much time passes."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")

        def let_go() -> None:
            clock.advance(span)
            other.execute("ROLLBACK")

        timer = threading.Timer(0.1, let_go)
        timer.start()
        yield
        timer.join()


def test_a_lease_counts_from_when_the_claim_got_its_turn(
    engine: SqliteEngine, clock: ManualClock, path: Path
) -> None:
    engine.declare(QUEUE, Policy(ack_timeout="2s"))
    put(engine, NewMessage(delay=1_000))
    with held_up(path, clock, "3s"):
        (delivery,) = engine.claim(QUEUE, ClaimRequest()).deliveries
    assert delivery.deadline == clock() + 2_000
    with held_up(path, clock, "1s"):
        assert engine.renew(QUEUE, [delivery.receipt], 500) == [Outcome.OK]
    assert engine.find(QUEUE, State.PROCESSING).entries[0].deadline == clock() + 500
    with held_up(path, clock, "3s"):
        engine.records.put("lock", "leader", b"me", ttl=2_000)
    assert engine.records.get("lock", "leader")


# ---- What is done after the commit -------------------------------------------------------------------


def test_a_purge_that_cannot_clean_up_has_purged(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(connection: sqlite3.Connection) -> bool:
        raise EngineBusy

    put(engine, NewMessage())
    monkeypatch.setattr("postroom.engines.sqlite.trash.clean", busy)
    assert engine.purge(QUEUE) == 1
    assert engine.stats(QUEUE).ready == 0
    assert engine.sweep(QUEUE).full is False


def test_the_file_shrinks_after_a_purge_although_it_is_swept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.engines.sqlite.checkpointer.IDLE", 0.5)
    with postroom.open(f"sqlite:///{path}") as room:
        room.queue(QUEUE, Policy(lease="100ms")).put_many([b"x" * 1_000] * 6_000)
        room.queue(QUEUE).purge()
        end = time.monotonic() + PATIENCE
        while path.stat().st_size + Path(f"{path}-wal").stat().st_size > 1_000_000:
            assert time.monotonic() < end
            room.engine.sweep(QUEUE)
            time.sleep(0.05)


# ---- Several processes --------------------------------------------------------------------------------

PUT_FROM_OUTSIDE = """
import sys, postroom
with postroom.open(sys.argv[1]) as room:
    print("ready", flush=True)
    for line in sys.stdin:
        room.queue("emails").put(line.strip())
        print("put", flush=True)
"""


@contextlib.contextmanager
def producer(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PUT_FROM_OUTSIDE, f"sqlite:///{path}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_put_in_one_process_wakes_another_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with postroom.open(f"sqlite:///{path}") as room, producer(path) as process:
        # Without the net under the bells: only the doorbell is left.
        monkeypatch.setattr(room.engine._ringing, "_has_news", lambda queue: False)  # type: ignore[attr-defined]
        assert process.stdin
        for number in range(20):
            got: list[object] = []
            waiting = threading.Thread(target=lambda got=got: got.append(room.queue(QUEUE).claim(PATIENCE)))
            waiting.start()
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
            waiting.join()
            delivery = got[0]
            assert isinstance(delivery, postroom.Delivery)
            assert delivery.body == str(number)
            delivery.ack()


def test_who_begins_to_wait_after_a_long_silence_is_rung(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorbell, "_TICK", 60.0)
    with (
        contextlib.closing(SqliteEngine(File(str(path)))) as producer,
        contextlib.closing(SqliteEngine(File(str(path)))) as consumer,
    ):
        eventually(lambda: producer.put("q", [NewMessage()]) and producer._ringing._deserted is not None)
        consumer.purge("q")
        with consumer.waiter(["q"]) as waiter:
            waiter.arm()
            eventually(lambda: stamp_of(str(path.parent)))
            producer.put("q", [NewMessage()])
            assert waiter.wait(PATIENCE) == {"q"}


def test_nobody_is_looked_for_where_nobody_waits(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    eventually(lambda: engine.put("q", [NewMessage()]) and engine._ringing._deserted is not None)
    monkeypatch.setattr(Doorbell, "is_hung_up", lambda self: pytest.fail("looked"))
    monkeypatch.setattr(Doorbell, "ring", lambda *args: pytest.fail("rang"))
    engine.put("q", [NewMessage()])


@pytest.mark.parametrize("policy", [Policy(), Policy(rate="1/h"), Policy(max_in_flight=1)])
def test_an_idle_room_writes_nothing(path: Path, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks in vain must not wake others who ask in vain."""
    monkeypatch.setattr("postroom.engines.sqlite.checkpointer.IDLE", 600.0)
    with postroom.open(f"sqlite:///{path}") as room:
        queue = room.queue(QUEUE, policy)
        queue.put("a")
        assert queue.claim(timeout=0)
        if policy != Policy():
            queue.put("b")
            assert queue.claim(timeout=0) is None
        wal = Path(f"{path}-wal")
        before = wal.stat().st_size, wal.stat().st_mtime_ns
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            assert queue.claim(timeout=0.05) is None
        assert (wal.stat().st_size, wal.stat().st_mtime_ns) == before


# ---- Closing ------------------------------------------------------------------------------------------


def test_closing_ends_every_thread(path: Path) -> None:
    before = set(threading.enumerate())  # some of them may end meanwhile
    with postroom.open(f"sqlite:///{path}") as room:
        room.queue(QUEUE).claim(timeout=0.01)
    end = time.monotonic() + PATIENCE
    while set(threading.enumerate()) - before and time.monotonic() < end:
        time.sleep(0.01)
    assert set(threading.enumerate()) - before == set()


def test_a_waiter_outlives_its_engine(engine: SqliteEngine) -> None:
    waiter = engine.waiter([QUEUE])
    waiter.arm()
    engine.close()
    assert waiter.wait(PATIENCE) == {""}
    waiter.disarm()
    waiter.close()
    with pytest.raises(Closed):
        engine.waiter([QUEUE])


def test_a_tally_goes_over_so_many_rows_and_no_further(
    engine: SqliteEngine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(engine, *(NewMessage(delay=1_000 * n) for n in range(1, 11)))
    edges = [clock() + 1 + 5_000 * at for at in range(4)]
    monkeypatch.setattr(finding, "MAX_TALLY", 10)
    assert engine.tally(QUEUE, State.SCHEDULED, edges) == ([5, 5, 0], True)
    monkeypatch.setattr(finding, "MAX_TALLY", 7)
    assert engine.tally(QUEUE, State.SCHEDULED, edges) == ([5, 2, 0], False)


def test_levels_are_counted_so_far_and_the_books_know_the_rest_of_one(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(engine, *(NewMessage(priority=level) for level in [9] * 2 + [5] * 20 + [0] * 3))
    monkeypatch.setattr(finding, "_MOST_COUNTED", 12)  # four a level
    assert engine.backlog(QUEUE) == ({9: 2, 5: 20, 0: 3}, 0, True, True)
    put(engine, *(NewMessage(priority=0) for _ in range(7)))
    assert engine.backlog(QUEUE) == ({9: 2, 5: 4, 0: 4}, 0, False, True)


def test_what_an_older_release_pauses_has_no_end(
    engine: SqliteEngine, path: Path, clock: ManualClock
) -> None:
    """Such a one knows two columns; what it writes there is the whole of a pause."""
    put(engine, NewMessage())
    engine.pause(QUEUE, "deploy", span=1_000)
    with contextlib.closing(sqlite3.connect(path)) as db:
        paused, reason = db.execute("SELECT paused, pause_reason FROM postroom_queue").fetchone()
        assert (paused, reason.startswith("deploy"), reason.endswith(str(clock() + 1_000))) == (1, True, True)
        db.execute("UPDATE postroom_queue SET paused = 1, pause_reason = 'deploy'")
        db.commit()
    clock.advance("2s")
    assert engine.queues()[0][2:] == (True, "deploy", None)
    assert engine.claim(QUEUE, ClaimRequest()).deliveries == []
