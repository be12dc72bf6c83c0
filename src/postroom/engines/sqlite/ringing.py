"""Waking who waits: in this process directly, in others by the doorbell, and by a regular look as a net.

The net catches what nobody rang for: a producer that died between its commit and its ring, and
messages that came in with a transaction of the user's own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable

from postroom.engines.sqlite.doorbell import Doorbell
from postroom.engines.sqlite.file import File
from postroom.engines.sqlite.folder import Stamp, stamp_of
from postroom.engines.sqlite.reader import Reader
from postroom.engines.sqlite.state import SqliteState
from postroom.engines.sqlite.transaction import DEFAULT
from postroom.engines.steps.bells import Bells, is_topic, spread_of
from postroom.errors import PostroomError
from postroom.waiter import Waiter


class Ringing(Bells):
    """The waiters of this process, and those of others behind them."""

    def __init__(self, file: File, reader: Reader) -> None:
        super().__init__(threading.Lock(), self._hand_on)
        self._folder = file.folder
        self._reader = reader
        #: The stamp of the store's folder when there was no bell in it.
        self._deserted: Stamp | None = None
        self._doorbell = Doorbell(file.bell_path, self._heard, self._look)
        #: What the net saw last: the state of the file, and the next due time of each queue.
        self._version: object = None
        self._dues: dict[str, int | None] = {}

    # --- ringing ----------------------------------------------------------------------------

    def tell(self, rings: dict[str, int], bells: Iterable[str], stamp: Stamp | None) -> None:
        """After a commit: wake so many for each queue, this process first, and all for each bell.

        The stamp is that of the store's folder after the commit.
        """
        for queue, count in rings.items():
            told = self._ring_here(queue, count)
            if told < count and self._others_may_wait(stamp):
                self._doorbell.ring(queue, count - told)
        for bell in bells:
            with self.lock:
                self.ring_all(bell)
            self._doorbell.ring_all(bell)

    def tell_now(self, rings: dict[str, int]) -> None:
        """After a commit of somebody else."""
        self.tell(rings, (), stamp_of(self._folder))

    def _others_may_wait(self, stamp: Stamp | None) -> bool:
        """False if nobody has hung up a bell since we last found none."""
        if stamp is None or stamp != self._deserted:
            self._deserted = None if self._doorbell.is_hung_up() else stamp
            return True
        return False

    def _ring_here(self, queue: str, count: int) -> int:
        # Asked without the lock: who arms only now looks after that, and finds what was committed.
        if not self.anybody_armed:
            return 0
        with self.lock:
            return self.ring(queue, count)

    def _heard(self, name: str) -> None:
        """Another process rings. Whoever is awake here already will look for itself."""
        with self.lock:
            if is_topic(name):
                self.ring_all(name)
            else:
                self.ring(name, 1)

    def _hand_on(self, queue: str, unused: bool) -> None:
        """A waiter left: somebody else gets its unused ring, or its watch over the next due time."""
        with contextlib.suppress(PostroomError):  # a hint, and there is the net
            state = self._seen(queue)
            if (unused and state.claimable) or state.scheduled:
                self.tell_now({queue: 1})

    def rank_delay(self, queue: str, waiter: Waiter) -> int:
        """How much later than the first, of all processes, this waiter need wake."""
        with self.lock:
            return spread_of(self.rank(queue, waiter) + self._doorbell.rank(queue))

    # --- who waits --------------------------------------------------------------------------

    def first_armed(self, name: str) -> None:
        self._doorbell.arm(name)

    def last_disarmed(self, name: str) -> None:
        self._doorbell.disarm(name)
        self._dues.pop(name, None)

    # --- the net ----------------------------------------------------------------------------

    def _look(self) -> None:
        """If the file has changed: wake one for each queue that has something, and all for each topic."""
        with contextlib.suppress(PostroomError):  # whoever works with the store hears of it there
            with self._reader.look() as connection:
                # The number counts from the opening of the connection.
                version = id(connection), connection.execute("PRAGMA data_version").fetchone()
            if version != self._version:
                self._ring_for_news()
                self._version = version

    def _ring_for_news(self) -> None:
        with self.lock:
            names = self.armed()
        for name in names:
            if is_topic(name) or self._has_news(name):
                self._heard(name)

    def _has_news(self, queue: str) -> bool:
        with self._reader.look() as connection:
            state = SqliteState.load(connection, queue, 0, DEFAULT)
            due = state.first_due()
        earlier = due is not None and self._dues.get(queue) != due
        self._dues[queue] = due
        return earlier or (state.claimable > 0 and not state.paused)

    def _seen(self, queue: str) -> SqliteState:
        with self._reader.look() as connection:
            return SqliteState.load(connection, queue, 0, DEFAULT)

    def close(self) -> None:
        """Everybody wakes, and nobody is listed as waiting any more."""
        with self.lock:
            super().close()
        self._doorbell.close()

    def leave_to_parent(self) -> None:
        """In a forked child: the waiters, and the socket they are rung by, belong to the parent."""
        self.reset(threading.Lock())
        self._version = None
        self._doorbell.abandon()
