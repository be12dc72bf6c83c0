"""Which server a call goes to: the one there is, the one the sentinels name, or the owner of a slot."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import hiredis
from redis import exceptions as theirs
from redis.crc import key_slot

from postroom.engines.redis.connecting import connection
from postroom.engines.redis.faults import NoReply, NotSent
from postroom.engines.redis.pool import Link, Pool
from postroom.engines.redis.urls import Node, Settings
from postroom.errors import ConfigError

#: Threads that wait for messages: one a process, in a cluster one for each slot it consumes from.
MAX_BLOCKED = 64
#: A slot may move on while we follow it, but not forever.
_MAX_REDIRECTS = 8
#: While a slot is being moved, a call that finds its keys in two places comes back after this (seconds).
_TRY_AGAIN_PAUSE = 0.05
#: So many questions go out together.
_PORTION = 1_000
#: Who failed is asked last, and not believed to own anything, for so long (seconds).
_DOUBT = 10.0
#: Who is the primary now, or who owns which slots, is asked at most this often because of a reply (seconds).
_REFRESH_PAUSE = 0.1

_LOST = (theirs.ConnectionError, theirs.TimeoutError)
#: Somebody else may be the primary now: it went away, or says so itself.
_REPLACED = (*_LOST, theirs.ReadOnlyError, theirs.ClusterDownError)
#: The same in replies without a class of their own; the first is that of one whose replicas are cut off.
_REPLACED_REPLIES = ("NOREPLICAS ", "MASTERDOWN ", "UNBLOCKED ")
_ELSEWHERE = (theirs.MovedError, theirs.AskError, theirs.TryAgainError)
_ASKING = b"*1\r\n$6\r\nASKING\r\n"
_CLUSTER_SLOTS = b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n"

Argument = bytes | str | int | float
#: The key that says where it goes, and the command as it is sent.
Command = tuple[bytes, bytes]


def pack(args: Sequence[Argument]) -> bytes:
    """A command as it is sent."""
    packed: bytes = hiredis.pack_command(tuple(args))  # type: ignore[arg-type]  # the stub asks for exactly one
    return packed


class Route(Protocol):
    """Sends packed commands to where their key lives. Raises errors of redis, Closed and EngineBusy."""

    def ask(self, key: bytes | None, packed: bytes, block: float | None = None, answers: int = 1) -> Any:
        """The answer; of several commands in one, the list of their answers.

        `block`: it may take this long (seconds), on a connection of its own.
        """

    def ask_each(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to many questions, in few round trips."""

    def ask_all(self, packed: bytes) -> list[Any]:
        """The answers of all servers that hold data."""

    def close(self) -> None: ...


def _in_portions(ask: Callable[..., Any], commands: Sequence[bytes]) -> list[Any]:
    """The answers to all, so many of them in one sending."""
    found: list[Any] = []
    for first in range(0, len(commands), _PORTION):
        some = commands[first : first + _PORTION]
        answer = ask(b"".join(some), answers=len(some))
        found += answer if len(some) > 1 else [answer]
    return found


def _is_replaced(error: theirs.RedisError) -> bool:
    """Whether somebody else may be the primary now."""
    return isinstance(error, _REPLACED) or str(error).startswith(_REPLACED_REPLIES)


def route(settings: Settings) -> Route:
    if settings.mode == "sentinel":
        return SentinelRoute(settings)
    return ClusterRoute(settings) if settings.mode == "cluster" else SingleRoute(settings)


# --- one server ---------------------------------------------------------------------------------


class Server:
    """One server, or whoever `find` names at the moment: links for calls, and others for waiting."""

    def __init__(self, settings: Settings, find: Callable[[], Node | None], where: str) -> None:
        self._settings = settings
        self._find = find
        self._calls = self._pool(where, settings.max_connections)
        self._blocked = self._pool(where, MAX_BLOCKED)

    def _pool(self, where: str, limit: int) -> Pool:
        settings = self._settings
        return Pool(
            self._connect,
            where=where,
            limit=limit,
            wait=settings.socket_timeout,
            health=settings.health_check_interval,
        )

    def _connect(self) -> Link:
        settings = self._settings
        try:
            return Link(connection(settings, self._find()), settings.socket_timeout)
        except theirs.TimeoutError:
            if not settings.retry_on_timeout:
                raise
        return Link(connection(settings, self._find()), settings.socket_timeout)

    def ask(self, packed: bytes, block: float | None = None, answers: int = 1) -> Any:
        pool = self._calls if block is None else self._blocked
        try:
            return self._ask(pool, packed, block, answers)
        except NotSent:  # the other side went away at the very moment of sending
            return self._ask(pool, packed, block, answers)
        except NoReply:
            self.drop()  # a connection that carries nothing is seldom the only one
            raise

    @staticmethod
    def _ask(pool: Pool, packed: bytes, block: float | None, answers: int) -> Any:
        link = pool.take()
        try:
            if block is not None:
                link.set_timeout(block)
            return link.ask(packed, answers=answers)
        finally:
            pool.give_back(link)

    def drop(self) -> None:
        """Use none of the present connections again."""
        self._calls.drop()
        self._blocked.drop()

    def close(self) -> None:
        self._calls.close()
        self._blocked.close()


class SingleRoute:
    """Everything goes to the one server."""

    def __init__(self, settings: Settings) -> None:
        node = settings.nodes[0] if settings.nodes else None
        self._server = Server(settings, lambda: node, settings.where)

    def ask(self, key: bytes | None, packed: bytes, block: float | None = None, answers: int = 1) -> Any:
        return self._server.ask(packed, block, answers)

    def ask_each(self, commands: Sequence[Command]) -> list[Any]:
        return _in_portions(self._server.ask, [packed for _, packed in commands])

    def ask_all(self, packed: bytes) -> list[Any]:
        return [self._server.ask(packed)]

    def close(self) -> None:
        self._server.close()


# --- Sentinel -----------------------------------------------------------------------------------


class SentinelRoute:
    """Everything goes to the primary; every new connection asks the sentinels who that is."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sentinels = list(settings.nodes)
        self._server = Server(settings, self._primary, settings.where)
        self._left_at = 0.0

    def ask(self, key: bytes | None, packed: bytes, block: float | None = None, answers: int = 1) -> Any:
        try:
            return self._server.ask(packed, block, answers)
        except theirs.RedisError as error:
            if isinstance(error, _LOST) or (_is_replaced(error) and self._is_time_to_leave()):
                self._server.drop()
            raise

    def _is_time_to_leave(self) -> bool:
        """Not at each reply: they come as fast as calls do, while there may be nobody else."""
        now = time.monotonic()
        if now - self._left_at < _REFRESH_PAUSE:
            return False
        self._left_at = now
        return True

    def ask_each(self, commands: Sequence[Command]) -> list[Any]:
        return _in_portions(partial(self.ask, None), [packed for _, packed in commands])

    def ask_all(self, packed: bytes) -> list[Any]:
        return [self.ask(None, packed)]

    def close(self) -> None:
        self._server.close()

    def _primary(self) -> Node:
        service, failed, answered = self._settings.service, None, False
        packed = pack(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service))
        for sentinel in list(self._sentinels):
            try:
                address = self._ask_sentinel(sentinel, packed)
            except _LOST as error:
                failed = error
                continue
            answered = True
            if address:
                self._prefer(sentinel)
                return Node(address[0].decode(), int(address[1]))
        if answered:
            raise ConfigError(f"{self._settings.where}: the sentinels know no primary named {service!r:.80}")
        raise failed or theirs.ConnectionError("no sentinel answered")

    def _ask_sentinel(self, sentinel: Node, packed: bytes) -> Any:
        settings = self._settings
        changed = {"username": settings.sentinel_username, "password": settings.sentinel_password, "db": 0}
        return ask_once(settings, sentinel, packed, **changed)

    def _prefer(self, sentinel: Node) -> None:
        """Ask first who answered last, not one that is away."""
        self._sentinels = [sentinel, *(other for other in self._sentinels if other != sentinel)]


def ask_once(settings: Settings, node: Node, packed: bytes, **changed: Any) -> Any:
    """The answer to a question about the servers, within the connect timeout."""
    link = Link(connection(settings, node, **changed), settings.socket_connect_timeout)
    try:
        return link.ask(packed)
    finally:
        link.close()


# --- Cluster ------------------------------------------------------------------------------------


class ClusterRoute:
    """A call goes to the primary that owns the slot of its key.

    A redirection means that nothing was done, and is followed. When a node cannot be reached, the call
    fails, and the next one first asks the other nodes who owns what now.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._servers: dict[Node, Server] = {}
        self._owners: list[Node | None] = []
        #: When a node failed last.
        self._doubted: dict[Node, float] = {}
        self._stale = True
        self._asked_at = 0.0
        self._closed = False
        self._lock = threading.Lock()

    def ask(self, key: bytes | None, packed: bytes, block: float | None = None, answers: int = 1) -> Any:
        slot = None if key is None else key_slot(key)
        node, asking = self._owner(slot), False
        redirects, end = 0, time.monotonic() + self._settings.socket_timeout
        while redirects < _MAX_REDIRECTS:
            try:
                if not asking:
                    return self._server(node).ask(packed, block, answers)
                _, *found = self._server(node).ask(_ASKING + packed, block, answers + 1)
                return found if answers > 1 else found[0]
            except theirs.MovedError as moved:
                node, asking, redirects = _redirected(moved, node), False, redirects + 1
                self._owners[moved.slot_id] = node
                self._stale = True  # the others of its node have probably moved too
            except theirs.AskError as ask:
                node, asking, redirects = _redirected(ask, node), True, redirects + 1
            except theirs.TryAgainError:  # its keys are in two places: no longer than an answer may take
                if time.monotonic() > end:
                    raise
                time.sleep(_TRY_AGAIN_PAUSE)
            except theirs.RedisError as error:
                if _is_replaced(error):
                    self._doubt(node)
                raise
        raise theirs.ClusterError(f"redirected {_MAX_REDIRECTS} times without finding the owner of the slot")

    def ask_each(self, commands: Sequence[Command]) -> list[Any]:
        places: dict[Node, list[int]] = {}
        for place, (key, _) in enumerate(commands):
            places.setdefault(self._owner(key_slot(key)), []).append(place)
        found: dict[int, Any] = {}
        for node, some in places.items():
            found |= zip(some, self._ask_some(node, [commands[place] for place in some]), strict=True)
        return [found[place] for place in range(len(commands))]

    def _ask_some(self, node: Node, commands: Sequence[Command]) -> list[Any]:
        try:
            return _in_portions(partial(self._ask_node, node), [packed for _, packed in commands])
        except _ELSEWHERE:
            return [self.ask(key, packed) for key, packed in commands]

    def ask_all(self, packed: bytes) -> list[Any]:
        self._owner(None)
        return [self._ask_node(node, packed) for node in _distinct(self._owners)]

    def _ask_node(self, node: Node, packed: bytes, answers: int = 1) -> Any:
        try:
            return self._server(node).ask(packed, answers=answers)
        except theirs.RedisError as error:
            if _is_replaced(error):
                self._doubt(node)
            raise

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for server in self._servers.values():
                server.close()

    def _owner(self, slot: int | None) -> Node:
        if self._stale:
            self._refresh()
        owners = self._owners
        node = next(_distinct(owners), None) if slot is None else owners[slot]
        if node is None:
            self._stale = True
            raise theirs.ClusterDownError(f"slot {slot} has no owner")
        return node

    def _server(self, node: Node) -> Server:
        server = self._servers.get(node)
        if server is None:
            with self._lock:
                server = self._servers.get(node)
                if server is None:
                    server = Server(self._settings, lambda: node, f"{self._settings.scheme}://{node}")
                    if self._closed:
                        server.close()
                    self._servers[node] = server
        return server

    # --- who owns what ----------------------------------------------------------------------

    def _doubt(self, node: Node) -> None:
        self._doubted[node] = time.monotonic()
        self._stale = True

    def _refresh(self) -> None:
        with self._lock:
            if not self._stale or (self._owners and time.monotonic() - self._asked_at < _REFRESH_PAUSE):
                return
            self._owners = self._ask_owners()
            self._asked_at = time.monotonic()
            self._stale = False
            gone = self._servers.keys() - set(self._owners)
            for node in gone:
                self._servers.pop(node).drop()

    def _ask_owners(self) -> list[Node | None]:
        """The first answer in which every slot has an owner who did not fail lately, or that two nodes give,
        or what comes nearest.

        One that was removed knows of no owners, and one that is cut off still names those who are gone.
        """
        failed: Exception | None = None
        best: list[Node | None] = []
        most = -1
        for node in self._candidates():
            if best and None not in best and node in self._doubtful():
                break  # an answer that will do; whoever is left may well keep us waiting
            try:
                owners = _owners(ask_once(self._settings, node, _CLUSTER_SLOTS), node)
            except _LOST as error:
                failed = error
                self._doubt(node)
                continue
            self._doubted.pop(node, None)
            if owners == best and None not in owners:
                break  # whoever failed is still the owner
            sure = len(owners) - sum(map(owners.count, {None, *self._doubtful()}))
            if sure > most:
                best, most = owners, sure
            if sure == len(owners):
                break
        if not best:
            raise failed or theirs.ConnectionError("no node of the cluster answered")
        return best

    def _doubtful(self) -> set[Node]:
        """Who failed lately."""
        since = time.monotonic() - _DOUBT
        self._doubted = {node: at for node, at in self._doubted.copy().items() if at > since}
        return set(self._doubted)

    def _candidates(self) -> list[Node]:
        """All nodes we have heard of, those that failed last at the end."""
        nodes = list(dict.fromkeys([*_distinct(self._owners), *self._settings.nodes]))
        return sorted(nodes, key=self._doubtful().__contains__)


def _owners(rows: list[Any], asked: Node) -> list[Node | None]:
    """The owner of each slot, from the answer to CLUSTER SLOTS."""
    owners: list[Node | None] = [None] * 16_384
    for first, last, primary, *_ in rows:
        node = Node((primary[0] or b"").decode() or asked.host, int(primary[1]))
        owners[first : last + 1] = [node] * (last + 1 - first)
    return owners


def _redirected(to: theirs.AskError, asked: Node) -> Node:
    return Node(to.host.strip("[]") or asked.host, to.port)


def _distinct(owners: list[Node | None]) -> Iterator[Node]:
    return (node for node in dict.fromkeys(owners) if node is not None)
