"""Postroom beside others that keep a queue in a SQLite file, all with the same durability.

Everybody commits one message at a time in WAL mode with synchronous=FULL, in a file of its own on the
same disk, whose log everybody has filled once before. They take turns many times in a trial, so that all
meet the same load: what counts are the ratios. "plain SQLite" is no queue but what a disk and a commit cost
anybody, "our writes alone" what Postroom's promises cost without Postroom.
"""

from __future__ import annotations

import importlib
import importlib.util
import sqlite3
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bench.bare import bare
from bench.claim import Drain, turns, two_calls
from bench.measure import Case, rate
from bench.stage import BODY, DATA, Stage
from postroom.model import NewMessage
from postroom.queue import Queue

#: How often they take turns in a trial. The slowest quarter of everybody's slices met somebody else's load
#: and is left out; a slice is long enough that checkpoints are not.
_SLICES, _COUNTED = 8, 6
_FULL = 2  # PRAGMA synchronous

Fill = Callable[[Queue, int], None]

_PROMISES = """\
Like with like: "Postroom" and "huey's task()" are what a program calls, which makes a message of a value;
"Postroom's engine", huey and litequeue are given bytes and only keep them.
What an enqueue does, beside the one wait for the disk that all have in common:
  Postroom    makes JSON of the body; a repeated id is the same message; priorities, due times, counters of
              the queue, whom to wake: four pages a commit.
  huey        a row and its place in an index: two pages.
  litequeue   a row, and its places by id and by state: three pages.
What a dequeue promises:
  Postroom    a lease: when the worker dies, the message is delivered again by itself. By turn, an ack
              and the next claim are one commit; as two calls they are two.
  huey        deletes the message before the work begins, one commit: when the worker dies, it is lost,
              and its storage has no call by which a user could do better with several workers.
  litequeue   pop marks the message, done marks it again, two commits: when the worker dies, it stays
              marked until somebody goes and looks.
"our writes alone" are Postroom's statements by sqlite3, with nothing of Postroom: what its promises cost."""


class _Queue(Protocol):
    """What is measured of everybody."""

    def put(self, count: int) -> None:
        """So many messages, a commit each."""

    def take(self, count: int) -> None:
        """Exactly as many as there are, one by one, until each is done with."""


class _Postroom(_Queue):
    """In by one of two ways, through the engine contract out."""

    def __init__(self, queue: Queue, fill: Fill, drain: Drain) -> None:
        self._queue = queue
        self._fill = fill
        self._drain = drain

    def put(self, count: int) -> None:
        self._fill(self._queue, count)

    def take(self, count: int) -> None:
        self._drain(self._queue, 1)


def _by_door(queue: Queue, count: int) -> None:
    """Through the Python door, which makes JSON of a body."""
    for _ in range(count):
        queue.put(BODY)


def _by_engine(queue: Queue, count: int) -> None:
    engine, name = queue.room.engine, queue.name
    for _ in range(count):
        engine.put(name, [NewMessage(body=DATA)])


class _Huey(_Queue):
    def __init__(self, storage: Any) -> None:
        self._storage = storage

    def put(self, count: int) -> None:
        for _ in range(count):
            self._storage.enqueue(DATA)

    def take(self, count: int) -> None:
        for _ in range(count):
            assert self._storage.dequeue() == DATA


class _HueyTask(_Queue):
    """What a program calls: a decorated function in; out as huey's consumer takes it, without running it."""

    def __init__(self, huey: Any) -> None:
        self._huey = huey
        self._task = huey.task()(_no_op)

    def put(self, count: int) -> None:
        for _ in range(count):
            self._task(BODY)

    def take(self, count: int) -> None:
        for _ in range(count):
            assert self._huey.dequeue().args == (BODY,)


def _no_op(body: object) -> None:
    pass


class _LiteQueue(_Queue):
    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def put(self, count: int) -> None:
        text = DATA.decode()
        for _ in range(count):
            self._queue.put(text)

    def take(self, count: int) -> None:
        for _ in range(count):
            self._queue.done(self._queue.pop().message_id)


class _Plain(_Queue):
    """One table, no index, no queue: a row in, a row out."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute("CREATE TABLE row (key INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    def put(self, count: int) -> None:
        for _ in range(count):
            self._connection.execute("INSERT INTO row (body) VALUES (?)", (DATA,))

    def take(self, count: int) -> None:
        sql = "DELETE FROM row WHERE key = (SELECT min(key) FROM row) RETURNING body"
        for _ in range(count):
            assert self._connection.execute(sql).fetchall() == [(DATA,)]


# ---- Opening them ---------------------------------------------------------------------------------


@contextmanager
def _postroom(stage: Stage, fill: Fill, drain: Drain) -> Iterator[_Queue]:
    with stage.queue() as queue:
        yield _Postroom(queue, fill, drain)


@contextmanager
def _huey(file: Path) -> Iterator[_Queue]:
    storage = importlib.import_module("huey.storage").SqliteStorage(filename=str(file), fsync=True)
    try:
        _check(storage.conn)
        yield _Huey(storage)
    finally:
        storage.close()


@contextmanager
def _huey_task(file: Path) -> Iterator[_Queue]:
    huey = importlib.import_module("huey").SqliteHuey(filename=str(file), fsync=True, results=False)
    try:
        _check(huey.storage.conn)
        yield _HueyTask(huey)
    finally:
        huey.storage.close()


@contextmanager
def _litequeue(file: Path) -> Iterator[_Queue]:
    queue = importlib.import_module("litequeue").LiteQueue(str(file))
    try:
        queue.conn.execute("PRAGMA synchronous = FULL")
        _check(queue.conn)
        yield _LiteQueue(queue)
    finally:
        queue.conn.close()


@contextmanager
def _plain(file: Path) -> Iterator[_Queue]:
    connection = sqlite3.connect(file, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        _check(connection)
        yield _Plain(connection)
    finally:
        connection.close()


def _check(connection: sqlite3.Connection) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    assert (mode, level) == ("wal", _FULL), f"not the same durability: {mode}, synchronous={level}"


_TASK = "huey's task()"
#: Whom to measure besides, and the package that has to be installed for it.
_PEERS = {"huey": (_huey, "huey"), "litequeue": (_litequeue, "litequeue"), _TASK: (_huey_task, "huey")}

# ---- The cases ------------------------------------------------------------------------------------

_TURN, _TWO = "Postroom by turn", "Postroom as two calls"
#: No queues, but what there is to compare them with.
_FLOORS = {"our writes alone": bare, "plain SQLite": _plain}

Rates = dict[str, float]


def cases(stage: Stage) -> list[Case]:
    if stage.engine != "sqlite":
        return []
    peers = [name for name, (_, package) in _PEERS.items() if importlib.util.find_spec(package)]
    example = dict.fromkeys((_TURN, _TWO, *peers, *_FLOORS), 1.0)
    figures = [stage.figure(name, "×" if "÷" in name else "/s") for name in _figures(example, example)]

    def trial() -> list[float]:
        return list(_figures(*_rates(stage, peers)).values())

    return [Case("peers", tuple(figures), trial, lambda: _notes(peers))]


def _figures(puts: Rates, takes: Rates) -> Rates:
    """Every figure by its name. A program's call is compared with another program's call, and what only keeps
    bytes with what only keeps bytes."""
    others = [name for name in puts if name not in (_TURN, _TWO)]
    keepers = [name for name in others if name != _TASK]
    tasks = [name for name in others if name == _TASK]
    return {
        "enqueue: Postroom": puts[_TURN],
        "enqueue: Postroom's engine": puts[_TWO],
        **{f"enqueue: {name}": puts[name] for name in others},
        **{f"enqueue: Postroom ÷ {name}": puts[_TURN] / puts[name] for name in tasks},
        **{f"enqueue: Postroom's engine ÷ {name}": puts[_TWO] / puts[name] for name in keepers},
        **{f"dequeue+ack: {name}": takes[name] for name in takes},
        **{f"dequeue+ack: turn ÷ {name}": takes[_TURN] / takes[name] for name in others},
        **{f"dequeue+ack: two calls ÷ {name}": takes[_TWO] / takes[name] for name in others},
    }


def _notes(peers: list[str]) -> list[str]:
    missing = ", ".join(name for name in _PEERS if name not in peers)
    left_out = f"Not measured, because not installed (`make bench` does that): {missing}"
    return [_PROMISES, left_out] if missing else [_PROMISES]


def _rates(stage: Stage, peers: list[str]) -> tuple[Rates, Rates]:
    """Puts and takes a second, by name. Who begins changes with every slice."""
    count = stage.size(150, 40)
    with ExitStack() as stack:
        order = list(_opened(stage, peers, stack).items())
        puts: dict[str, list[float]] = {name: [] for name, _ in order}
        takes: dict[str, list[float]] = {name: [] for name, _ in order}
        for _ in range(_SLICES):
            order.append(order.pop(0))
            for name, queue in order:
                puts[name].append(rate(count, partial(queue.put, count)))
            for name, queue in order:
                takes[name].append(rate(count, partial(queue.take, count)))
    return {name: _overall(puts[name]) for name in puts}, {name: _overall(takes[name]) for name in takes}


def _overall(rates: list[float]) -> float:
    return statistics.harmonic_mean(sorted(rates)[-_COUNTED:])


def _opened(stage: Stage, peers: list[str], stack: ExitStack) -> dict[str, _Queue]:
    ours = {_TURN: (_by_door, turns), _TWO: (_by_engine, two_calls)}
    opened = {name: stack.enter_context(_postroom(stage, *ways)) for name, ways in ours.items()}
    folder = stack.enter_context(stage.new_folder())
    others = {name: _PEERS[name][0] for name in peers} | _FLOORS
    opened |= {
        name: stack.enter_context(way(folder / f"{place}.db"))
        for place, (name, way) in enumerate(others.items())
    }
    for queue in opened.values():
        queue.put(warm := stage.size(600, 40))  # more than SQLite's own thousand pages
        queue.take(warm)
    return opened
