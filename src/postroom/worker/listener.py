"""What a worker listens to: the rings of those queues of which it can take something, and of no others."""

from __future__ import annotations

import select
from collections.abc import Collection, Sequence

from postroom.room import Room
from postroom.waiter import Waiter


class Listener:
    """A waiter for each queue that has a share of its own, and one for all the others.

    A queue whose share is used up is not waited for: its rings go to a worker that has room for it.
    """

    def __init__(self, room: Room, queues: Sequence[str], apart: Collection[str]) -> None:
        rest = [queue for queue in queues if queue not in apart]
        groups = [[queue] for queue in queues if queue in apart] + ([rest] if rest else [])
        self._groups: list[tuple[Waiter, list[str]]] = [(room.waiter(group), group) for group in groups]
        self._armed: dict[str, Waiter] = {}
        self._poll = select.poll()
        for waiter, _ in self._groups:
            self._poll.register(waiter.fileno(), select.POLLIN)

    def arm(self, queues: Collection[str]) -> list[str]:
        """Listen to these queues and to no others; which of them were not listened to before.

        Ask those once more before a wait: what came in unheard does not ring again.
        """
        new: list[str] = []
        for waiter, group in self._groups:
            wanted, armed = any(queue in queues for queue in group), group[0] in self._armed
            if wanted and not armed:
                waiter.arm()
                self._armed |= dict.fromkeys(group, waiter)
                new += group
            elif armed and not wanted:
                waiter.disarm()
                for queue in group:
                    del self._armed[queue]
        return new

    def waiter(self, queue: str) -> Waiter | None:
        """The waiter that listens to this queue, if one does."""
        return self._armed.get(queue)

    def wait(self, timeout: float) -> frozenset[str]:
        """Sleep until a ring or the timeout (seconds); who rang."""
        rung = {fd for fd, _ in self._poll.poll(timeout * 1_000)}
        names = [waiter.clear() for waiter, _ in self._groups if waiter.fileno() in rung]
        return frozenset().union(*names)

    def ring(self, name: str = "") -> None:
        """Wake the worker from inside its own process."""
        self._groups[0][0].ring(name)

    def close(self) -> None:
        for waiter, _ in self._groups:
            waiter.close()
