"""One suspect at a time: what it may take down with it stays small."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable

from postroom.delivery import Delivery


class SuspectSlot:
    """One suspect at a time in this process, so that what it may take down with it stays small.

    Reserve before a claim, then `fill` with what the claim gave. The slot is free again when its
    delivery is settled — or was dropped by its consumer without being settled.
    """

    def __init__(self, on_free: Callable[[], None]) -> None:
        self._on_free = on_free
        self.empty()
        _SLOTS.add(self)

    def empty(self) -> None:
        """As at the beginning: a forked child has neither the claims nor the suspects of its parent."""
        self._lock = threading.Lock()
        self._reserved = False
        self._holder: weakref.ref[Delivery] | None = None

    def reserve(self) -> bool:
        """Whether the coming claim may bring a suspect; if so, follow it up with `fill`."""
        with self._lock:
            if self._reserved or (self._holder is not None and self._holder() is not None):
                return False
            self._reserved = True
            return True

    def fill(self, deliveries: Iterable[Delivery]) -> None:
        """End a reservation with what the claim gave."""
        suspect = next((delivery for delivery in deliveries if delivery.suspect), None)
        with self._lock:
            self._reserved = False
            self._holder = weakref.ref(suspect) if suspect else None

    def give_back(self, delivery: Delivery) -> None:
        """This delivery is settled; whoever waits may have the next suspect."""
        with self._lock:
            if self._holder is None or self._holder() is not delivery:
                return
            self._holder = None
        self._on_free()


#: The slots of this process.
_SLOTS: weakref.WeakSet[SuspectSlot] = weakref.WeakSet()


def _after_fork() -> None:
    for slot in list(_SLOTS):
        slot.empty()


os.register_at_fork(after_in_child=_after_fork)
