"""Waking those who wait in other processes, through the sockets in the folder beside the file.

Who commits looks at the folder and sends the name to as many listeners as there is work for. All of this is
a hint: where it cannot work (a full disk, a folder of somebody else), the regular tick remains.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import secrets
import select
import socket
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator

from postroom.engines.sqlite.bellfolder import GONE, BellFolder, encode, mark_of, new_listener

_log = logging.getLogger("postroom.sqlite")

#: Seconds between two ticks: how late a waiter is that nobody could ring.
_TICK = 0.25
#: Ticks between two searches for listeners that were killed.
_SWEEP = 20
#: Longest ring, in bytes; a name has up to about 210.
_MAX_RING = 1_024
#: Rings read in a row, so that a flood does not hold up the tick.
_READ_AT_ONCE = 64
#: Names given up last that are still passed on when they ring.
_REMEMBERED = 1_024
#: How many of those ahead are checked to be alive; nobody asks whether it is fourth or fortieth.
_CHECKED_AHEAD = 3


class Doorbell:
    """Rings those who wait in other processes, and hears their rings.

    `on_ring(name)` is called for each ring, also for a name that was disarmed a moment ago; `on_tick()` every
    250 ms while anything is armed. Both run in a thread of the doorbell, without any lock of it. No method
    raises because of the folder. In a forked child, `abandon` comes before anything else.
    """

    def __init__(self, folder: str, on_ring: Callable[[str], None], on_tick: Callable[[], None]) -> None:
        self._folder = BellFolder(folder)
        self._on_ring = on_ring
        self._on_tick = on_tick
        self._warned = False
        #: Where each name's next round begins: after the listener told last.
        self._told_last: dict[str, str] = {}
        self._first_turn = secrets.token_hex(4)
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._closed = False
        self._armed: set[str] = set()
        self._given_up: dict[str, None] = {}
        self._listener: str | None = None
        self._bell: socket.socket | None = None
        self._sender: socket.socket | None = None
        self._wakers: tuple[socket.socket, socket.socket] | None = None
        self._thread: threading.Thread | None = None
        self._dozing = False
        self._displaced = False

    # ---- ringing ----------------------------------------------------------------------------------

    def ring(self, name: str, count: int) -> int:
        """Tell up to `count` others who wait for this name, in turn; how many were told."""
        armed = self._folder.look().armed
        if not armed or count < 1:
            return 0
        others = [listener for listener in armed.get(mark_of(name), ()) if listener != self._listener]
        if not others:
            return 0
        try:
            return self._tell(name, others, count)
        except FileNotFoundError:
            return 0  # the folder went away meanwhile
        except OSError as error:
            self._warn(error)
            return 0

    def is_hung_up(self) -> bool:
        """Whether anybody listens, or may have: there is a folder."""
        return self._folder.exists()

    def ring_all(self, name: str) -> int:
        """Tell all others who wait for this name."""
        return self.ring(name, 1_000_000)

    def _tell(self, name: str, others: list[str], count: int) -> int:
        data = encode(name)
        first = bisect_right(others, self._told_last.get(name, self._first_turn))
        told = full = 0
        with self._folder.addresses() as base:
            sender = self._sender or self._open_sender()
            for listener in others[first:] + others[:first]:
                try:
                    sender.sendto(data, f"{base}/{listener}")
                except GONE:
                    self._folder.forget(listener)
                except OSError as error:
                    if error.errno not in {errno.EAGAIN, errno.ENOBUFS}:
                        raise
                    # It has rings enough; but it may be stopped, so another one hears of this first.
                    full += 1
                else:
                    told += 1
                    self._note_turn(name, listener)
                    if told == count:
                        break
        return min(told + full, count)

    def _note_turn(self, name: str, listener: str) -> None:
        if len(self._told_last) > _REMEMBERED:
            self._told_last.clear()
        self._told_last[name] = listener

    def _open_sender(self) -> socket.socket:
        with self._lock:
            if self._sender is None:
                self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._sender.setblocking(False)
            return self._sender

    def rank(self, name: str) -> int:
        """How many others who wait for this name come before this one, in an order on which all agree."""
        own = self._listener
        armed = self._folder.look().armed.get(mark_of(name), ())
        ahead = [listener for listener in armed if own is None or listener < own]
        dead = [listener for listener in ahead[:_CHECKED_AHEAD] if not self._folder.is_alive(listener)]
        for listener in dead:
            self._folder.forget(listener)
        return len(ahead) - len(dead)

    # ---- listening --------------------------------------------------------------------------------

    def arm(self, name: str) -> None:
        """From now on somebody here waits for this name."""
        with self._lock:
            if self._closed or name in self._armed:
                return
            self._armed.add(name)
            self._given_up.pop(name, None)
            if self._thread is None:
                self._start()
            elif self._listener is not None:
                self._mark(self._listener, name)
            if self._dozing or self._displaced:
                self._dozing = False
                self._wake()

    def disarm(self, name: str) -> None:
        """Nobody here waits for this name any more."""
        with self._lock:
            if name not in self._armed:
                return
            self._armed.remove(name)
            self._given_up[name] = None
            if len(self._given_up) > _REMEMBERED:
                del self._given_up[next(iter(self._given_up))]
            if self._listener is not None:
                self._folder.unmark(self._listener, name)

    def _mark(self, listener: str, name: str) -> None:
        try:
            self._folder.mark(listener, name)
        except FileNotFoundError:
            self._displaced = True  # the folder was removed under us; the thread moves in again
        except OSError as error:
            self._displaced = True
            self._warn(error)

    def _start(self) -> None:
        try:
            self._wakers = self._wakers or _waker_pair()
            thread = threading.Thread(
                target=self._run, args=(self._wakers[0],), name="postroom-doorbell", daemon=True
            )
            self._move_in()
            thread.start()
            self._thread = thread
        except (OSError, RuntimeError) as error:  # no descriptor or no thread left: the next arm tries again
            self._warn(error)

    def _move_in(self) -> None:
        """Take a socket and set the markers, all or none; the next tick tries again."""
        self._move_out()
        listener = new_listener()
        try:
            self._bell = self._folder.open(listener)
            self._listener = listener
            for name in self._armed:
                self._folder.mark(listener, name)
            self._folder.sweep(listener)
        except OSError as error:
            self._warn(error)
            self._move_out()

    def _move_out(self) -> None:
        if self._listener is not None:
            self._folder.forget(self._listener)
        if self._bell is not None:
            self._bell.close()
        self._listener = self._bell = None

    def _wake(self) -> None:
        if self._wakers:
            with contextlib.suppress(OSError):  # a byte is pending already
                self._wakers[1].send(b"\0")

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "no doorbell in %s (%s): waiters here look every %d ms instead",
                self._folder.path,
                error,
                _TICK * 1_000,
                extra={"event": "sqlite.no_doorbell", "error": str(error)},
            )

    # ---- the thread -------------------------------------------------------------------------------

    def _run(self, wakes: socket.socket) -> None:
        due, ticks = time.monotonic() + _TICK, 0
        while not self._closed:
            dozing = self._may_doze()
            self._sleep(wakes, None if dozing else due - time.monotonic())
            for name in self._rings():
                self._call(functools.partial(self._on_ring, name))
            if dozing:
                due = time.monotonic() + _TICK
            if self._displaced or time.monotonic() >= due:
                due, ticks = time.monotonic() + _TICK, ticks + 1
                self._tick(sweep=ticks % _SWEEP == 0)

    def _may_doze(self) -> bool:
        with self._lock:
            self._dozing = not self._armed and not self._closed
            return self._dozing

    def _sleep(self, wakes: socket.socket, seconds: float | None) -> None:
        poll = select.poll()
        poll.register(wakes, select.POLLIN)
        if self._bell is not None:
            poll.register(self._bell, select.POLLIN)
        poll.poll(None if seconds is None else max(0, seconds) * 1_000)
        with contextlib.suppress(OSError):
            wakes.recv(64)

    def _rings(self) -> Iterator[str]:
        """The names that were rung; what nobody here knows is not meant for us."""
        bell = self._bell
        if bell is None:
            return
        for _ in range(_READ_AT_ONCE):
            try:
                # One byte more than any name has: what is longer is cut off there, and nobody's name.
                name = bell.recv(_MAX_RING + 1).decode("utf-8", "surrogatepass")
            except UnicodeDecodeError:
                continue
            except OSError:  # nothing more, or closed by a callback
                return
            if name in self._armed or name in self._given_up:
                yield name

    def _tick(self, *, sweep: bool) -> None:
        with self._lock:
            if self._closed or not self._armed:
                return
            displaced, self._displaced = self._displaced, False
            if displaced or self._listener is None or not self._folder.holds(self._listener):
                self._move_in()
        if sweep:
            self._folder.sweep(self._listener)
        self._call(self._on_tick)

    def _call(self, callback: Callable[[], None]) -> None:
        if self._closed:
            return
        try:
            callback()
        except Exception:
            _log.exception("a waiter could not be woken", extra={"event": "sqlite.ring_failed"})

    # ---- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave nothing behind. Not under a lock that the callbacks take: it waits for the thread."""
        if os.getpid() != self._pid:
            self.abandon()
        with self._lock:
            thread, self._closed = self._thread, True
            self._wake()
        if thread and thread is not threading.current_thread():
            thread.join(2)  # a callback that hangs shall not hang us too
        with self._lock:
            self._armed.clear()
            self._move_out()
            if thread:
                self._folder.sweep(None)
            self._folder.remove()
            self._close_descriptors()

    def abandon(self) -> None:
        """In a forked child: let go of what belongs to the parent, and begin anew with nothing armed."""
        self._close_descriptors()
        self._reset()

    def _close_descriptors(self) -> None:
        for descriptor in (self._bell, self._sender, *(self._wakers or ())):
            if descriptor is not None:
                descriptor.close()
        self._bell = self._sender = self._wakers = None


def _waker_pair() -> tuple[socket.socket, socket.socket]:
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    return reader, writer
