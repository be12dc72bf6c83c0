"""Connections, and the bounded number of them that the threads of a process share.

A command is sent at most once. What fails before it is sent is tried again on a new connection; when no
answer comes back, whoever called has to decide, because only the caller knows whether it may be repeated.
"""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from redis import exceptions as theirs

from postroom.engines.redis.faults import NoReply, NotSent
from postroom.errors import Closed, EngineBusy

#: A reply of these classes is read and then raised like a lost connection, though nothing was lost.
REPLIES = (theirs.BusyLoadingError, theirs.AuthenticationError, theirs.AuthorizationError)


#: Replies of a cluster, which releases of redis-py before 6 know only in their own cluster client.
_CLUSTER_REPLIES: dict[str, type[theirs.ResponseError]] = {
    "MOVED": theirs.MovedError,
    "ASK": theirs.AskError,
    "TRYAGAIN": theirs.TryAgainError,
    "CLUSTERDOWN": theirs.ClusterDownError,
    "CROSSSLOT": theirs.ClusterCrossSlotError,
}


class Connection(Protocol):
    """What we use of a connection of redis.connection, which has few types of its own."""

    _sock: socket.socket | None  # there is no public way to it, in any release

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def can_read(self, timeout: float) -> bool: ...
    def send_packed_command(self, command: list[bytes], check_health: bool) -> None: ...
    def read_response(self) -> Any: ...


class Link:
    """One connection, used by one thread at a time. It raises errors of redis, NoReply among them."""

    __slots__ = ("_connection", "_poll", "_timeout", "alive", "epoch", "used_at")

    def __init__(self, connection: Connection, timeout: float) -> None:
        """Connects, and reads with this timeout from then on."""
        connection.connect()
        self._connection = connection
        self._timeout = 0.0
        self.alive: bool = True
        self.epoch: int = 0
        self.used_at: float = time.monotonic()
        self.set_timeout(timeout)
        self._poll = _poll(self._socket)

    def set_timeout(self, seconds: float) -> None:
        """How long the next answer may take."""
        if seconds != self._timeout:
            self._set_timeout(seconds)

    def _set_timeout(self, seconds: float) -> None:
        self._timeout = seconds
        if sock := self._socket:
            sock.settimeout(seconds)

    def ask(self, packed: bytes, *, answers: int = 1) -> Any:
        """Send and read the answer; of several commands in one, the list of their answers."""
        connection = self._connection
        try:
            connection.send_packed_command([packed], check_health=False)
        except BaseException as error:
            self.close()  # an incomplete command is never done, so nothing was
            if isinstance(error, theirs.ConnectionError):
                raise NotSent(str(error)) from error
            raise
        try:
            answer = connection.read_response() if answers == 1 else self._read_all(answers)
        except theirs.ResponseError as error:  # an answer too: the connection is as good as before
            raise _classified(error) from None
        except REPLIES:
            self.close()
            raise
        except (theirs.RedisError, OSError) as error:
            self.close()
            raise NoReply(str(error)) from error
        except BaseException:  # an interrupt: the answer may still come, and belongs to nobody
            self.close()
            raise
        self.used_at = time.monotonic()
        return answer

    def _read_all(self, count: int) -> list[Any]:
        """So many answers. An error among them is raised when all are read: none may be left over."""
        found, failed = [], None
        for _ in range(count):
            try:
                found.append(self._connection.read_response())
            except theirs.ResponseError as error:
                failed = failed or error
        if failed:
            raise failed
        return found

    def is_usable(self, health_check_interval: float) -> bool:
        """Whether a command may be sent: nobody closed it. After a long rest it must answer; else NoReply."""
        try:
            # Nothing is due: what can be read is an end, or a leftover.
            if self._poll.poll(0) if self._poll else self._can_read():
                return False
            if health_check_interval and time.monotonic() - self.used_at > health_check_interval:
                self.ask(b"*1\r\n$4\r\nPING\r\n")
        except NoReply:
            raise
        except (theirs.RedisError, OSError):
            return False
        return True

    def _can_read(self) -> bool:
        found = self._connection.can_read(timeout=0)
        self._set_timeout(self._timeout)  # releases of redis-py before 8 leave another one behind
        return found

    def interrupt(self) -> None:
        """Have the thread that reads from it fail at once."""
        if sock := self._socket:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.alive = False
        self._connection.disconnect()

    @property
    def _socket(self) -> socket.socket | None:
        return self._connection._sock


def _poll(sock: socket.socket | None) -> select.poll | None:
    """What tells in a moment whether a socket can be read; of TLS only its own layer knows."""
    if sock is None or isinstance(sock, ssl.SSLSocket):
        return None
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return poll


def _classified(error: theirs.ResponseError) -> theirs.ResponseError:
    code, _, text = str(error).partition(" ")
    kind = _CLUSTER_REPLIES.get(code)
    return kind(text) if kind and type(error) is theirs.ResponseError else error


class Pool:
    """Up to `limit` links to one place, opened when needed. Thread-safe; not for use after a fork."""

    def __init__(
        self,
        connect: Callable[[], Link],
        *,
        where: str,
        limit: int,
        wait: float,
        health: float,
    ) -> None:
        self.where = where
        self._connect = connect
        self._limit = limit
        self._wait = wait
        self._health_check_interval = health
        #: A permit for each link that may be taken; not a Semaphore, which takes ten times as long.
        self._free: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(limit):
            self._free.put(None)
        self._idle: deque[Link] = deque()
        self._used: set[Link] = set()
        self._epoch = 0
        self._closed = False

    def take(self) -> Link:
        """A link that can be sent on; raises EngineBusy, Closed or an error of redis. Give it back."""
        try:
            self._free.get(timeout=self._wait)
        except queue.Empty:
            raise EngineBusy(
                f"{self.where}: all {self._limit} connections were in use for {self._wait:g} s; nothing was"
                " sent: try again, or raise max_connections"
            ) from None
        try:
            self._check_open()
            link = self._idle_link() or self._new_link()
        except BaseException:
            self._free.put(None)
            raise
        self._used.add(link)
        try:
            self._check_open()  # `close` may not have seen this link while it was being opened
        except Closed:
            self.give_back(link)
            raise
        return link

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the engine is closed")

    def _idle_link(self) -> Link | None:
        while True:
            try:
                link = self._idle.pop()
            except IndexError:
                return None
            try:
                if link.epoch == self._epoch and link.is_usable(self._health_check_interval):
                    return link
            except NoReply:
                self.drop()  # the others have most likely rested as long: each would cost a timeout
            link.close()

    def _new_link(self) -> Link:
        epoch = self._epoch
        link = self._connect()
        link.epoch = epoch
        return link

    def give_back(self, link: Link) -> None:
        self._used.discard(link)
        if link.alive and link.epoch == self._epoch and not self._closed:
            self._idle.append(link)
        elif link.alive:
            link.close()
        self._free.put(None)

    def drop(self) -> None:
        """Use none of the present links again: the place may have moved."""
        self._epoch += 1
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()

    def close(self) -> None:
        """Close what is idle, and have those who still read fail."""
        self._closed = True
        self.drop()
        for link in list(self._used):
            link.interrupt()
