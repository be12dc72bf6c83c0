"""What queues promise, kept in the spool too: for when Redis is away, or comes back empty."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from postroom.engine import Engine, QueueInfo
from postroom.errors import Conflict, EngineUnavailable
from postroom.policy import Policy

log: logging.Logger = logging.getLogger(__name__)


class Mirror:
    """The queues that this process has heard of, as Redis knew them last."""

    def __init__(self, spool: Engine, clock: Callable[[], int]) -> None:
        self._spool = spool
        self._clock = clock
        self._known: dict[str, QueueInfo] = {}

    def declare(self, queue: str, policy: Policy) -> None:
        known = self._known.get(queue)
        self.note(known._replace(policy=policy) if known else QueueInfo(queue, policy))

    def pause(self, queue: str, paused: bool, reason: str = "", until: int | None = None) -> None:
        if info := self._known.get(queue):
            self.note(info._replace(paused=paused, pause_reason=reason, paused_until=until))

    def note(self, info: QueueInfo) -> None:
        """Have the spool know what a queue promises."""
        if self._known.get(info.name) == info:
            return
        try:
            self._spool.declare(info.name, info.policy)
            if info.paused:
                until = info.paused_until
                left = None if until is None else max(1, until - self._clock())
                self._spool.pause(info.name, info.pause_reason, span=left)
            else:
                self._spool.resume(info.name)
            self._known[info.name] = info
        except (Conflict, EngineUnavailable) as error:  # then it goes by what it knew before
            log.info("%s", error, extra={"event": "spool.not_mirrored", "queue": info.name})

    def forget(self, queue: str) -> None:
        self._known.pop(queue, None)

    def dedupe_window(self, queue: str) -> int:
        """Of a queue that this process has not heard of yet, the spool may know it from another."""
        if queue not in self._known:
            with suppress(EngineUnavailable):
                found = self._spool.queues([queue])
                # Unless somebody has declared it meanwhile: that is newer.
                self._known.setdefault(queue, found[0] if found else QueueInfo(queue, Policy()))
        info = self._known.get(queue)
        return info.policy.dedupe_window if info else 0

    def restore(self, primary: Engine) -> None:
        """A Redis that came back empty has forgotten what its queues promise."""
        known = self._known.copy()  # others go on learning
        wanted = {name: info.policy for name, info in known.items() if info.policy != Policy()}
        there = {info.name for info in primary.queues(list(wanted))}
        for name in wanted.keys() - there:
            primary.declare(name, wanted[name])
