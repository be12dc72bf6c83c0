"""The folder beside the file where those who wait leave their sockets and say what they wait for.

Each listener, one a process and file, has a socket there, and an empty marker for each name it waits for:

    jobs.db.bell/9f2c11d0-4711                      the socket
    jobs.db.bell/9f2c11d0-4711.3a7bd3e2360a3d29     waits for the name with this hash
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from postroom.engines.sqlite.folder import is_settled

#: What a socket's address may hold is 104 bytes on macOS, 108 on Linux.
_MAX_ADDRESS = 100

_ENTRY = re.compile(r"([0-9a-f]{8}-\d+)(?:\.([0-9a-f]{16}))?")
#: The other end is gone: its process died.
GONE = (ConnectionRefusedError, FileNotFoundError)


def new_listener() -> str:
    """A name for a socket: the random part first, so that the order says nothing about who came first."""
    return f"{secrets.token_hex(4)}-{os.getpid()}"


@functools.lru_cache(maxsize=4_096)
def mark_of(name: str) -> str:
    """What stands for a name in a file's name: any text becomes 16 hex digits."""
    return hashlib.blake2b(encode(name), digest_size=8).hexdigest()


def encode(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


class Listing(NamedTuple):
    """What the folder held at one moment."""

    changed: int
    #: Whether any later change shows in the folder's time.
    settled: bool
    #: The listeners by the mark of the name they wait for, in the order on which all agree.
    armed: dict[str, list[str]]
    #: All listeners, and whether they wait for anything.
    listeners: dict[str, bool]


_NOBODY = Listing(0, False, {}, {})


class BellFolder:
    """The folder, as every process sees it."""

    def __init__(self, path: str) -> None:
        self.path: str = str(Path(path).absolute())
        self._listing = _NOBODY
        self._fits = len(os.fsencode(self.path)) + len("/01234567-4194304") <= _MAX_ADDRESS

    def exists(self) -> bool:
        return os.access(self.path, os.F_OK)

    def look(self) -> Listing:
        """Who listens; one system call as long as nothing changed."""
        if self._listing is _NOBODY and not self.exists():
            return _NOBODY  # as with the stat, but without the costs of an exception
        try:
            changed = os.stat(self.path).st_mtime_ns  # noqa: PTH116 - after every commit, Path costs as much again
        except OSError:
            self._listing = _NOBODY
            return _NOBODY
        listing = self._listing
        if changed != listing.changed or not listing.settled:
            self._listing = listing = self._read(changed)
        return listing

    def _read(self, changed: int) -> Listing:
        settled = is_settled(changed)
        try:
            entries = sorted(os.listdir(self.path))  # noqa: PTH208 - names are all we need
        except OSError:
            return _NOBODY._replace(changed=changed)
        armed: dict[str, list[str]] = {}
        listeners: dict[str, bool] = {}
        for entry in filter(None, map(_ENTRY.fullmatch, entries)):
            listener, mark = entry.groups()
            listeners[listener] = listeners.get(listener, False) or mark is not None
            if mark:
                armed.setdefault(mark, []).append(listener)
        return Listing(changed, settled, armed, listeners)

    def open(self, listener: str) -> socket.socket:
        """Make the folder if need be, and the listener's socket in it."""
        for _ in range(10):
            with contextlib.suppress(FileExistsError):
                Path(self.path).mkdir(mode=0o700)
            # Who closes removes the empty folder, maybe just now: then once more.
            with contextlib.suppress(FileNotFoundError):
                return self._bind(listener)
        raise FileNotFoundError(errno.ENOENT, "the folder is removed again and again", self.path)

    def _bind(self, listener: str) -> socket.socket:
        bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            bell.setblocking(False)
            with self.addresses() as base:
                bell.bind(f"{base}/{listener}")
        except OSError:
            bell.close()
            raise
        return bell

    @contextlib.contextmanager
    def addresses(self) -> Iterator[str]:
        """The folder as the first part of a socket's address, also where its path is too long for one."""
        if self._fits:
            yield self.path
            return
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{folder}"  # without /proc there is no doorbell, only the tick
        finally:
            os.close(folder)

    def mark(self, listener: str, name: str) -> None:
        marker = f"{self.path}/{listener}.{mark_of(name)}"
        os.close(os.open(marker, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))

    def unmark(self, listener: str, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(f"{self.path}/{listener}.{mark_of(name)}")  # noqa: PTH108 - each time somebody wakes

    def holds(self, listener: str) -> bool:
        return Path(self.path, listener).exists()

    def is_alive(self, listener: str) -> bool:
        """Whether a process has this socket open; it hears nothing of the question."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                with self.addresses() as base:
                    probe.connect(f"{base}/{listener}")
            except GONE:
                return False
            except OSError:
                return True  # we cannot tell: nothing to tidy up
        return True

    def forget(self, listener: str) -> None:
        """Remove all a listener left behind, its socket last: who stops half-way leaves a trace of it."""
        with contextlib.suppress(OSError):
            for marker in list(Path(self.path).glob(f"{listener}.*")):
                marker.unlink(missing_ok=True)
            Path(self.path, listener).unlink(missing_ok=True)

    def sweep(self, own: str | None) -> None:
        """Forget those who were killed."""
        for listener, waits in self.look().listeners.items():
            if listener != own and (waits or self._is_grown(listener)) and not self.is_alive(listener):
                self.forget(listener)

    def _is_grown(self, listener: str) -> bool:
        # In the middle of bind() a socket looks dead; a marker only comes after it.
        try:
            return time.time() - Path(self.path, listener).stat().st_mtime > 1
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the folder, unless somebody is still in it."""
        with contextlib.suppress(OSError):
            Path(self.path).rmdir()
