"""Who handles what in a service: handlers by pattern, and the queue that brings them their events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from postroom.celery.events.topology import Names, check_queues
from postroom.celery.exchanges import matches
from postroom.errors import InvalidInput

#: Events whose handlers are known without looking at every pattern again.
_REMEMBERED = 4_096


class Handlers:
    """The handlers of one service, as names of tasks."""

    def __init__(self, names: Names, *, one_queue: bool) -> None:
        self._names = names
        self._one_queue = one_queue
        self._patterns: dict[str, list[str]] = {}
        self._queues: dict[str, list[str]] = {}
        self._tasks = lru_cache(_REMEMBERED)(self._find_tasks)
        self._queue = lru_cache(_REMEMBERED)(self._find_queue)

    def add(self, task: str, patterns: Iterable[str], group: str | None) -> None:
        """Have the task handle what these patterns mean. Raises InvalidInput."""
        if task in self:
            raise InvalidInput(f"handler {task}: there is one of this name already")
        queues = {name: list(patterns) for name, patterns in self._queues.items()}
        for pattern in patterns:
            queue = self._names.queue(pattern, group, one=self._one_queue)
            bound = queues.setdefault(queue, [])
            if pattern not in bound:
                bound.append(pattern)
        check_queues(queues)
        self._queues = queues
        for pattern in patterns:
            self._patterns.setdefault(pattern, []).append(task)
        self._tasks.cache_clear()
        self._queue.cache_clear()

    def __contains__(self, task: str) -> bool:
        return any(task in tasks for tasks in self._patterns.values())

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(task for tasks in self._patterns.values() for task in tasks))

    @property
    def queues(self) -> dict[str, list[str]]:
        """Every queue with the patterns that it is bound by, in an order that does not change."""
        return {queue: sorted(self._queues[queue]) for queue in sorted(self._queues)}

    def of(self, event: str) -> list[str]:
        """The tasks that handle an event, each once."""
        return self._tasks(event)

    def queue_of(self, event: str) -> str:
        """The queue that brings this event; "" when no handler means it."""
        return self._queue(event)

    def _find_tasks(self, event: str) -> list[str]:
        found = (
            task for pattern, tasks in self._patterns.items() if matches(pattern, event) for task in tasks
        )
        return sorted(set(found))

    def _find_queue(self, event: str) -> str:
        for queue, patterns in self._queues.items():
            if any(matches(pattern, event) for pattern in patterns):
                return queue
        return ""
