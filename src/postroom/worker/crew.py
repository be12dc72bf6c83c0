"""The hands of a worker: threads that run handlers on started deliveries."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from postroom.delivery import Delivery
from postroom.errors import Undecodable, Verdict
from postroom.model import Failure, Settlement, Verb
from postroom.worker.handlers import Handlers
from postroom.worker.pace import Pace
from postroom.worker.runs import Runs

log: logging.Logger = logging.getLogger(__name__)

Around = Callable[[Delivery], AbstractContextManager[Any]]


class Crew:
    """Runs handlers on `size` daemon threads. What was handed in comes back through `finished`."""

    def __init__(
        self,
        size: int,
        handlers: Handlers,
        around: Around | None,
        on_error: Callable[[Delivery, BaseException], None],
        on_finished: Callable[[], None],
    ) -> None:
        self.pace: Pace = Pace()
        self.runs: Runs = Runs()
        #: (delivery, how to settle it); None: the handler settled it itself.
        self.finished: deque[tuple[Delivery, Settlement | None]] = deque()
        self._handlers = handlers
        self._around = around
        self._on_error = on_error
        self._on_finished = on_finished
        self._inbox: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"postroom-hand-{n}", daemon=True) for n in range(size)
        ]

    def __contains__(self, thread: threading.Thread) -> bool:
        return thread in self._threads

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def hand(self, delivery: Delivery) -> None:
        self._inbox.put(delivery)

    def take_back(self) -> list[Delivery]:
        """Whatever no hand has begun yet."""
        waiting: list[Delivery] = []
        with contextlib.suppress(queue.Empty):
            while delivery := self._inbox.get_nowait():
                waiting.append(delivery)
        return waiting

    @property
    def backlog(self) -> int:
        return self._inbox.qsize()

    def dismiss(self, *, wait: bool) -> None:
        """Send everybody home, at the latest after what they are doing; wait for that or not."""
        for _ in self._threads:
            self._inbox.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _work(self) -> None:
        while (delivery := self._inbox.get()) is not None:
            began = time.perf_counter()
            settlement = self._run(delivery)
            took = time.perf_counter() - began
            self.pace.note(took)
            self.runs.note(delivery, took, settlement)
            self.finished.append((delivery, settlement))
            del delivery  # a hand that waits must not keep a settled delivery alive
            self._on_finished()

    def _run(self, delivery: Delivery) -> Settlement | None:
        handler = self._handlers.find(delivery.queue, delivery.kind)
        if handler is None:
            failure = Failure(
                type="NoHandler", text=f"no handler for kind {delivery.kind!r} of {delivery.queue!r}"
            )
            log.error("no handler for %r", delivery, extra={"event": "handler.missing", **delivery.log_extra})
            return Settlement(delivery.receipt, Verb.BURY, failure=failure)
        delivery.begin()
        try:
            if self._around is None:
                handler(delivery)
            else:
                with self._around(delivery) as delivery.context:
                    handler(delivery)
        except BaseException as error:  # a handler must never take its thread down
            settlement = self._failed(delivery, error)
        else:
            settlement = delivery.settlement(None)
        finally:
            delivery.end()
        return None if delivery.settled or delivery.lost else settlement

    def _failed(self, delivery: Delivery, error: BaseException) -> Settlement:
        try:
            self._report(delivery, error)
            return delivery.settlement(error if isinstance(error, Exception) else HandlerStopped(error))
        except Exception as worse:  # an error that cannot be printed, a log handler that fails
            return delivery.settlement(worse)

    def _report(self, delivery: Delivery, error: BaseException) -> None:
        asked_for = isinstance(error, Verdict)
        level = logging.INFO if asked_for else logging.ERROR
        unexpected = not asked_for and not isinstance(error, Undecodable)
        extra = {"event": "handler.failed", "error": f"{type(error).__name__}: {error}", **delivery.log_extra}
        what = "asked for" if asked_for else "failed on"
        log.log(
            level,
            "handler %s %r: %s",
            what,
            delivery,
            error,
            exc_info=error if unexpected else None,
            extra=extra,
        )
        self._on_error(delivery, error)


class HandlerStopped(Exception):
    """A handler raised SystemExit or the like; in a worker's thread that is a failure like any other."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"the handler raised {error!r}")
