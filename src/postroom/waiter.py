"""Waiters: the part of the contract about sleeping until there may be something to do."""

from __future__ import annotations

import abc
from typing import Self


class Waiter(abc.ABC):
    """Sleep until a queue may have something to claim or a topic something to read.

    Arm, then claim; only a claim that gave nothing is worth a wait. Whatever becomes claimable
    after `arm` rings, so nothing slips through between the claim and the wait. A ring is a hint
    and wakes few of many waiters: it may come to nothing, and a consumer also keeps its own timer
    for `next_wake`. Queues wake some waiters, topics wake all.
    """

    @abc.abstractmethod
    def fileno(self) -> int:
        """A file descriptor that is readable while a ring is pending; for selectors and asyncio."""

    @abc.abstractmethod
    def arm(self) -> None:
        """Ask to be rung from now on."""

    @abc.abstractmethod
    def disarm(self) -> None:
        """Stop being rung; an unused ring is handed to another waiter. A local `ring` stays pending."""

    @abc.abstractmethod
    def clear(self) -> frozenset[str]:
        """Take the pending rings: the names of queues and topics that rang. Stays armed."""

    @abc.abstractmethod
    def wait(self, timeout: float | None = None) -> frozenset[str]:
        """Sleep until a ring or the timeout (seconds), then `clear`."""

    @abc.abstractmethod
    def ring(self, name: str = "") -> None:
        """Wake this waiter from inside its own process, for a stop or a timer."""

    @abc.abstractmethod
    def close(self) -> None:
        """Disarm and free the descriptor. Closing twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
