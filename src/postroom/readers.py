"""Who reads which topic, and how far behind: as far as the readers tell it in the record of their worker.

A topic knows nothing of its readers: each keeps its own cursor, and reads when it likes. A worker that reads
topics for long (Celery's fanout queues) says with each beat how far it is, in a write that it makes anyhow.
Whoever reads by other means, such as a live page or a program's own loop, is not known and not counted.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from postroom.engine import Engine
from postroom.staff import WorkerInfo, read_workers

#: Places that are looked at in one call, each with one short read.
_MOST = 200


class Readers(msgspec.Struct, frozen=True, kw_only=True):
    """Who reads one topic: how many that tell it, and how long the oldest entry that the slowest of them
    (`slowest`, a worker's name) had not read waited for it when that told so last (ms; 0: nobody is behind).

    missed    entries that the topic had let go of before the slowest came for them
    complete  false: there are more places than are looked at, and others may be slower
    """

    count: int
    behind: int = 0
    slowest: str = ""
    missed: int = 0
    complete: bool = True


def read_readers(engine: Engine, topics: Collection[str]) -> dict[str, Readers]:
    """The readers of these topics, by topic; those that nobody tells to read are left out.

    A worker that is lost reads nothing. A lag is what it was at the worker's last beat, at most ten seconds
    ago: what was published since is no sign of a slow reader.
    """
    places: dict[str, list[tuple[str, WorkerInfo]]] = {}
    for worker in read_workers(engine):
        for topic, cursor in () if worker.lost else worker.reads:
            if topic in topics:
                places.setdefault(topic, []).append((cursor, worker))
    left, found = _MOST, dict[str, Readers]()
    for topic, told in sorted(places.items()):
        found[topic] = _slowest(engine, topic, told, left)
        left -= len({cursor for cursor, _ in told})
    return found


def _slowest(engine: Engine, topic: str, told: list[tuple[str, WorkerInfo]], most: int) -> Readers:
    """Those of one topic. Cursors are the engine's own words: only a read tells what one has before it."""
    cursors = sorted({cursor for cursor, _ in told})
    unread = {cursor: engine.read(topic, after=cursor, limit=1) for cursor in cursors[: max(0, most)]}
    slowest = Readers(count=len(told), complete=len(unread) == len(cursors))
    for cursor, worker in told:
        page = unread.get(cursor)
        behind = worker.last_seen - page.entries[0].at if page and page.entries else 0
        if page and (behind, page.missed) > (slowest.behind, slowest.missed):
            slowest = msgspec.structs.replace(slowest, behind=behind, slowest=worker.name, missed=page.missed)
    return slowest
