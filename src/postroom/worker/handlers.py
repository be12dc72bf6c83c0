"""Which code works on which message: only what was registered here, never what a message names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from postroom.breaker import Breaker
from postroom.delivery import Delivery
from postroom.errors import InvalidInput
from postroom.limits import check_name

Handler = Callable[[Delivery], Any]


class Handlers:
    """Handlers by queue, by kind, or by both; the closest registration wins.

    handlers = Handlers({"emails": send})
    @handlers.handle("reports", kind="monthly")
    """

    def __init__(
        self,
        by_queue: Mapping[str, Handler] | None = None,
        guard: Callable[[Handler], Handler] = lambda handler: handler,
    ) -> None:
        """`guard` is what every handler is wrapped into."""
        self._guard = guard
        self._table: dict[tuple[str | None, str | None], Handler] = {}
        self._breakers: dict[str, Breaker | Callable[[], Breaker]] = {}
        if by_queue is not None and not isinstance(by_queue, Mapping):
            raise InvalidInput(f"handlers: expected a function for each queue name, not {by_queue!r:.80}")
        for queue, handler in (by_queue or {}).items():
            self.register(handler, queue=queue)

    def handle(self, queue: str | None = None, kind: str | None = None) -> Callable[[Handler], Handler]:
        """Register a handler for a queue, for a kind, or for a kind of one queue. A decorator."""
        if callable(queue):
            raise InvalidInput('write @….handle("queue") or @….handle(kind="…"), with parentheses')

        def register(handler: Handler) -> Handler:
            self.register(handler, queue=queue, kind=kind)
            return handler

        return register

    def register(self, handler: Handler, *, queue: str | None = None, kind: str | None = None) -> None:
        if queue is None and kind is None:
            raise InvalidInput("a handler needs a queue, a kind or both")
        if not callable(handler) or _does_nothing(handler) or _does_nothing(type(handler).__call__):
            raise InvalidInput(
                f"handler: {handler!r:.80} is not a plain function such as `def handler(delivery)`; "
                "a coroutine works with `async for` over postroom.aio's queue.consume()"
            )
        for name, what in ((queue, "queue name"), (kind, "kind")):
            if name is not None:
                check_name(name, what)
        if (queue, kind) in self._table:
            raise InvalidInput(f"there is a handler for queue={queue!r} kind={kind!r} already")
        self._table[queue, kind] = self._guard(handler)

    def tie(self, queue: str, breaker: Breaker | Callable[[], Breaker]) -> None:
        """Have every worker with these handlers take nothing from this queue while the breaker is open.

        A function gives the breaker when a worker is made: one that is shared needs a room, which a
        module with handlers had better not open while it is imported.
        """
        self._breakers[check_name(queue, "queue name")] = breaker

    def breakers(self, queues: Collection[str]) -> dict[str, Breaker]:
        """What these queues are tied to."""
        tied = {queue: breaker for queue, breaker in self._breakers.items() if queue in queues}
        return {q: breaker if isinstance(breaker, Breaker) else breaker() for q, breaker in tied.items()}

    def guarded(self, guard: Callable[[Handler], Handler]) -> Handlers:
        """The handlers that are registered now, each wrapped into this guard."""
        guarded = Handlers(guard=guard)
        for (queue, kind), handler in self._table.items():
            guarded.register(handler, queue=queue, kind=kind)
        return guarded

    def find(self, queue: str, kind: str) -> Handler | None:
        find = self._table.get
        return find((queue, kind)) or find((queue, None)) or find((None, kind))

    def serves(self, queue: str) -> bool:
        """Whether any message of this queue could find a handler."""
        return any(named in (queue, None) for named, _ in self._table)

    @property
    def queues(self) -> list[str]:
        """The queues that were named."""
        return list(dict.fromkeys(queue for queue, _ in self._table if queue is not None))


def _does_nothing(function: Callable[..., Any]) -> bool:
    """Whether a mere call does no work yet: its message would be acked all the same."""
    lazy = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
    return any(is_lazy(function) for is_lazy in lazy)
