"""One Redis, one with replicas behind Sentinel, and a Cluster: what a message costs on each, turn about.

All on this machine, so this is what the shape itself takes; a network adds its round trip to every call.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import postroom
from bench.scaling.curves import Curve, Figures, calls, quiet
from bench.stage import Stage
from postroom.queue import Queue
from tests.redis import servers

_AOF = {"appendonly": "yes", "appendfsync": "everysec"}
#: The queues of a shape, so that those of a cluster are in many slots.
_QUEUES = 12


@contextmanager
def _single() -> Iterator[str]:
    with servers.single(_AOF) as one:
        yield one.url()


@contextmanager
def _sentinel(**options: str) -> Iterator[str]:
    with servers.sentinel(_AOF) as made:
        yield made.url(**options)


@contextmanager
def _cluster() -> Iterator[str]:
    with servers.cluster(_AOF) as made:
        yield made.url()


_SHAPES: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "one server": _single,
    "Sentinel, 2 replicas": _sentinel,
    "the same, replicated": lambda: _sentinel(durability="replicated"),
    "Cluster, 3 + 3": _cluster,
}


class Shapes(Curve):
    """A store of each shape, kept for all rounds."""

    def __init__(self, stage: Stage, sizes: list[int]) -> None:
        super().__init__(stage, sizes)
        self._queues: dict[str, list[Queue]] = {}

    def round(self) -> dict[str, Figures]:
        if not self._queues:
            for name, shape in _SHAPES.items():
                self._queues[name] = self._opened(shape, self._stage.kept)
        turns: dict[str, list[Figures]] = {name: [] for name in _SHAPES}
        for _ in range(self._stage.size(80, 3)):
            for name in random.sample(list(_SHAPES), len(_SHAPES)):
                spent = calls(random.choice(self._queues[name]))
                turns[name].append({what: seconds * 1e6 for what, seconds in spent.items()})
        return {name: quiet(every) for name, every in turns.items()}

    def _opened(self, shape: Callable[[], AbstractContextManager[str]], kept: ExitStack) -> list[Queue]:
        room = kept.enter_context(postroom.open(kept.enter_context(shape())))
        queues = [room.queue(f"q{number}") for number in range(_QUEUES)]
        for queue in queues:
            calls(queue)  # the first call of a queue declares it
        return queues
