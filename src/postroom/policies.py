"""What the queues promise, as far as this process knows it: asked of the store, and again once in a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from postroom.engine import Engine
from postroom.policy import Policy

#: A policy that somebody else changed is noticed after this long (seconds).
_AGE = 5.0


class Policies:
    """`default` says what a queue promises that nobody has declared."""

    def __init__(self, engine: Engine, default: Callable[[str], Policy]) -> None:
        self._engine = engine
        self._default = default
        self._known: dict[str, tuple[Policy, float]] = {}

    def of(self, queue: str, *, declare: bool = True, among: Sequence[str] = ()) -> Policy:
        """What this queue promises, which is declared by that unless it was, or `declare` is false.

        `among`: queues whose policies the caller will want too; the store is asked for all at once.
        """
        policy, known_at = self._known.get(queue, (None, 0.0))
        now = time.monotonic()
        if policy is None or now - known_at > _AGE:
            found = self._ask(queue, among, now)
            if not (found or declare):
                return self._default(queue)
            policy = found or self._declared(queue)
            self._known[queue] = policy, now
        return policy

    def forget(self, queue: str) -> None:
        """Ask the store the next time."""
        self._known.pop(queue, None)

    def _ask(self, queue: str, among: Sequence[str], now: float) -> Policy | None:
        """That of one queue, None if it does not exist; those of the others that are too old are noted."""
        known = self._known
        others = [name for name in among if name not in known or now - known[name][1] > _AGE]
        infos = self._engine.queues(list(dict.fromkeys([queue, *others])))
        found = {info.name: info.policy for info in infos}
        for name in others:
            policy = found.get(name) or self._default(name)
            if name in found or policy == Policy():  # else it has to be declared, by whoever asks for it
                known[name] = policy, now
        return found.get(queue)

    def _declared(self, queue: str) -> Policy:
        policy = self._default(queue)
        if policy != Policy():
            self._engine.declare(queue, policy)
        return policy
