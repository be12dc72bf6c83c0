"""The stores of the battle, how each can be hurt, and what must not be left in it."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from amqp import Message
from amqp.exceptions import AMQPError, MessageNacked
from redis.backoff import NoBackoff
from redis.retry import Retry

import postroom
from postroom.policy import Policy
from tests.battle import service
from tests.battle.work import LEASE, QUEUES, SERVICES
from tests.chaos.outside import check_sound
from tests.events import rabbit
from tests.processes import resident
from tests.redis import servers
from tests.redis.proxy import Proxy, proxied

#: What the battle asks of its queues. Who was cut off repeats its put: ids are known for a while.
_POLICY = {"ack_timeout": None, "max_attempts": 1_000, "backoff": "100ms"}
REMEMBERS = "10m"
ALWAYS = {"appendonly": "yes", "appendfsync": "always"}
#: Where a message is while it is in a Redis, also after a purge (trash:ready); all empty when all is done.
_PLACES = ("ready", "suspects", "due", "lease", "expires", "body", "delivery", "notes", "unique", "groups")
_SIZE = {b"zset": "ZCARD", b"hash": "HLEN", b"list": "LLEN", b"set": "SCARD", b"stream": "XLEN"}

#: An address of this machine at which no client looks for a server.
_ASIDE = "127.0.0.2"

#: Set for a process that may mount what nobody else sees.
MOUNTS = "BATTLE_MOUNTS"

#: The store is hurt when the block begins, and serves again when it ends.
Hurt = Callable[[random.Random], AbstractContextManager[None]]


@dataclass(frozen=True)
class Store:
    """`left`: what is in it, by where; to be looked at when everything is done."""

    url: str
    broker: str
    hurts: Mapping[str, Hurt]
    left: Callable[[], dict[str, int]]
    #: Bytes that it takes now, by where.
    sizes: Callable[[], dict[str, int]]
    #: Each asks a server for nothing, past Postroom: how long that takes is the machine's doing.
    probes: tuple[Callable[[], object], ...]


@contextlib.contextmanager
def opened(kind: str, folder: Path, *, remembers: str = REMEMBERS, lease: float = LEASE) -> Iterator[Store]:
    """A new store of this kind, with the queues of the battle in it."""
    policy = Policy.from_text(_POLICY | {"dedupe_window": remembers, "lease": lease})
    with _KINDS[kind](folder) as store:
        if kind not in ("stock", "rabbitmq"):
            with postroom.open(store.url) as room:
                for name in QUEUES:
                    room.queue(name, policy)
        yield store


# --- one Redis ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _redis(folder: Path, broker: str = "postroom+") -> Iterator[Store]:
    with servers.single(ALWAYS) as server, proxied(server.port) as proxy, _pinging([server]) as pings:
        url = f"redis://{servers.HOST}:{proxy.port}/0"
        yield Store(
            url,
            f"{broker}{url}",
            _hurts_of_one(server, proxy),
            lambda: _left_in_stock(server) if not broker else _left([server], url),
            lambda: _redis_size(server),
            pings,
        )


def _stock(folder: Path) -> AbstractContextManager[Store]:
    """The same server with kombu's own transport: what the others are compared with."""
    return _redis(folder, broker="")


def _hurts_of_one(server: servers.Server | rabbit.Rabbit, proxy: Proxy) -> dict[str, Hurt]:
    @contextlib.contextmanager
    def restarted(chance: random.Random) -> Iterator[None]:
        server.kill()
        yield
        server.start()

    @contextlib.contextmanager
    def cut(chance: random.Random) -> Iterator[None]:
        proxy.cut()
        yield
        proxy.mend()

    @contextlib.contextmanager
    def stalled(chance: random.Random) -> Iterator[None]:
        """Nobody hears that the connections are dead; new ones work."""
        proxy.stall()
        yield

    return {"restart": restarted, "freeze": _frozen(lambda _: server), "cut": cut, "stall": stalled}


def _frozen(which: Callable[[random.Random], servers.Server | rabbit.Rabbit]) -> Hurt:
    @contextlib.contextmanager
    def frozen(chance: random.Random) -> Iterator[None]:
        server = which(chance)
        server.freeze()
        try:
            yield
        finally:
            server.thaw()

    return frozen


def _disconnected(which: Callable[[], list[servers.Server]]) -> Hurt:
    @contextlib.contextmanager
    def disconnected(chance: random.Random) -> Iterator[None]:
        for server in which():
            server.ask("CLIENT", "KILL", "TYPE", "normal")
        yield

    return disconnected


def _cut_off(which: Callable[[random.Random], servers.Server]) -> Hurt:
    """Between clients and a primary there is no network, but between the servers there is: it moves to an
    address at which nobody looks for it, and all connections of clients end."""

    @contextlib.contextmanager
    def cut_off(chance: random.Random) -> Iterator[None]:
        server = which(chance)
        server.ask("CONFIG", "SET", "bind", _ASIDE)
        with redis.Redis(_ASIDE, server.port) as aside:
            aside.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            try:
                yield
            finally:
                aside.execute_command("CONFIG", "SET", "bind", servers.HOST)

    return cut_off


@contextlib.contextmanager
def _pinging(nodes: list[servers.Server]) -> Iterator[tuple[Callable[[], object], ...]]:
    """A connection of its own to each; one that is lost is made again by the next ping."""
    with contextlib.ExitStack() as stack:
        options: dict[str, Any] = {"retry": Retry(NoBackoff(), 0), "socket_timeout": servers.PATIENCE}
        made = [stack.enter_context(redis.Redis(servers.HOST, node.port, **options)) for node in nodes]
        yield tuple(client.ping for client in made)


def _redis_size(server: servers.Server) -> dict[str, int]:
    told = dict(
        line.split(":", 1) for line in server.ask("INFO", "memory").decode().split("\r\n") if ":" in line
    )
    return {"Redis memory": int(told["used_memory"])}


# --- several ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _sentinel(folder: Path) -> Iterator[Store]:
    with servers.sentinel(ALWAYS) as setup, _pinging(setup.servers) as pings:
        url = setup.url(durability="replicated")

        def quick(on: bool) -> None:
            """Only then: a primary that is merely slow would be replaced, with what its replicas lack."""
            for n, watcher in enumerate(setup.watchers):
                span = (2_000 if n else 400) if on else servers.NEVER
                watcher.ask("SENTINEL", "SET", servers.SERVICE, "down-after-milliseconds", span)

        @contextlib.contextmanager
        def failed_over(chance: random.Random) -> Iterator[None]:
            old = setup.primary
            quick(True)
            old.kill()
            yield
            new = setup.await_primary(old)
            old.start()
            quick(False)
            servers.until(lambda: servers.links_up(new) == 2, "the old primary does not follow")

        yield Store(
            url,
            f"postroom+{url}",
            {
                "failover": failed_over,
                "freeze": _frozen(lambda _: setup.primary),
                "cut": _cut_off(lambda _: setup.primary),
                "disconnect": _disconnected(lambda: [setup.primary]),
            },
            lambda: _left([setup.primary], url),
            lambda: _redis_size(setup.primary),
            pings,
        )


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[Store]:
    with servers.cluster(ALWAYS) as setup, _pinging(setup.servers) as pings:
        url = setup.url(durability="replicated")

        def primaries() -> list[servers.Server]:
            pairs = zip(setup.primaries, setup.replicas, strict=True)
            return [one if one.ask("ROLE")[0] == b"master" else other for one, other in pairs]

        def owner(chance: random.Random) -> servers.Server:
            """Who has one of the queues now."""
            first = setup.owner(f"postroom:{{{chance.choice(QUEUES)}}}:meta")
            return primaries()[setup.primaries.index(first)]

        def quick(on: bool) -> None:
            for server in setup.servers:
                server.ask("CONFIG", "SET", "cluster-node-timeout", 1_500 if on else servers.NEVER)

        @contextlib.contextmanager
        def failed_over(chance: random.Random) -> Iterator[None]:
            old = owner(chance)
            row = next(i for i in range(3) if old in (setup.primaries[i], setup.replicas[i]))
            heir = next(one for one in (setup.primaries[row], setup.replicas[row]) if one is not old)
            quick(True)
            old.kill()
            yield
            servers.until(lambda: heir.ask("ROLE")[0] == b"master", "no failover")
            old.start()
            quick(False)
            servers.until(lambda: servers.links_up(heir) == 1, "the old primary does not follow")
            servers.until(lambda: b"cluster_state:ok" in heir.ask("CLUSTER", "INFO"), "the cluster is down")

        yield Store(
            url,
            f"postroom+{url}",
            {
                "failover": failed_over,
                "freeze": _frozen(owner),
                "cut": _cut_off(owner),
                "disconnect": _disconnected(primaries),
            },
            lambda: _left(primaries(), url),
            lambda: dict(sum((Counter(_redis_size(server)) for server in primaries()), Counter())),
            pings,
        )


# --- a file -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _sqlite(folder: Path) -> Iterator[Store]:
    """On a small disk of its own where that is allowed (`can_mount`): there it can be full."""
    disk = folder / "disk"
    disk.mkdir()
    mounted = can_mount()
    if mounted:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", disk], check=True)
    store, ballast = disk / "store.db", disk / "ballast"

    @contextlib.contextmanager
    def full(chance: random.Random) -> Iterator[None]:
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4_096)
        yield
        ballast.unlink()

    def left() -> dict[str, int]:
        check_sound(store)
        return _left([], url) | _left_in_tables(store)

    url = f"sqlite:///{store}"
    hurts: dict[str, Hurt] = {"disk full": full} if mounted else {}
    try:
        yield Store(url, f"postroom+{url}", hurts, left, lambda: _file_sizes(store), ())
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", disk], check=True)


def can_mount() -> bool:
    """Whether this process sees mounts that nobody else does; `tests.battle` begins itself anew for that."""
    return os.environ.get(MOUNTS) == "yes"


def _left_in_tables(store: Path) -> dict[str, int]:
    """What is kept beside messages, and must go with them."""
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        counts = {
            table: db.execute(f"SELECT count(*) FROM postroom_{table}").fetchone()[0]
            for table in ("body", "trash")
        }
    return {f"table {table}": count for table, count in counts.items() if count}


def _file_sizes(store: Path) -> dict[str, int]:
    log = store.with_name(f"{store.name}-wal")
    return {"file": store.stat().st_size, "-wal": log.stat().st_size if log.exists() else 0}


# --- RabbitMQ -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _rabbitmq(folder: Path) -> Iterator[Store]:
    """One node. The services declare what they need when their first workers begin."""
    with rabbit.running() as node, proxied(node.port) as proxy, contextlib.closing(Asker(node)) as asker:
        url = f"amqp://guest:guest@{servers.HOST}:{proxy.port}//"
        hurts = _hurts_of_one(node, proxy)
        del hurts["stall"]  # only heartbeats tell of that, after minutes

        @contextlib.contextmanager
        def disconnected(chance: random.Random) -> Iterator[None]:
            node.close_connections("battle")
            yield

        yield Store(
            url, url, hurts | {"disconnect": disconnected}, lambda: _left_on(node),
            lambda: {"RabbitMQ": resident(node.pid)}, (asker.ask,),
        )  # fmt: skip


class Asker:
    """Has RabbitMQ write a line of no use, over a connection of its own; a lost one is made again next time.

    It takes the way of an ack: through the log of a quorum queue, which is written when the disk is done with
    what came before.
    """

    _QUEUE = "battle.probe"

    def __init__(self, node: rabbit.Rabbit) -> None:
        self._node, self._connection = node, node.connect()
        self._channel: Any = None

    def ask(self) -> None:
        try:
            self._channel = self._channel or self._opened()
            with contextlib.suppress(MessageNacked):  # said as soon as it could
                self._channel.basic_publish_confirm(Message(), routing_key=self._QUEUE)
        except (AMQPError, OSError):
            self.close()
            self._connection, self._channel = self._node.connect(), None
            raise

    def _opened(self) -> Any:
        channel = self._connection.channel()
        bounds = {"x-queue-type": "quorum", "x-max-length": 1}
        channel.queue_declare(self._QUEUE, durable=True, auto_delete=False, arguments=bounds)
        return channel

    def close(self) -> None:
        with contextlib.suppress(AMQPError, OSError):  # it is lost
            self._connection.close()


def _left_on(node: rabbit.Rabbit) -> dict[str, int]:
    """What is in any queue of the services; nobody has taken anything out who has not ended.

    What is ready is known exactly; what a rung is about to pass on, some seconds later.
    """
    queues = [each.name for name in SERVICES for each in service.made(name, node.url).topology.queues]
    totals = node.totals()
    counts = {queue: max(node.count(queue), totals.get(queue, 0)) for queue in queues}
    return {queue: count for queue, count in counts.items() if count}


# --- what is left -------------------------------------------------------------------------------


def _left(nodes: list[servers.Server], url: str) -> dict[str, int]:
    found: Counter[str] = Counter()
    with postroom.open(url) as room:
        for name in QUEUES:
            stats = room.queue(name).stats()
            states = {"ready": stats.ready, "scheduled": stats.scheduled, "processing": stats.processing}
            found.update(states | {"dead letters": stats.dead})
    for node in nodes:
        for key in node.ask("KEYS", "postroom:{*}:*"):
            place = key.decode(errors="replace").rpartition(":")[2]
            if place in _PLACES:
                found[f"key {place}"] += _size(node, key)
    return {where: count for where, count in found.items() if count}


def _left_in_stock(server: servers.Server) -> dict[str, int]:
    """Lists of waiting messages, by queue and priority; and what it takes for held by somebody."""
    found: Counter[str] = Counter()
    for key in server.ask("KEYS", "*"):
        name = key.decode(errors="replace")
        if name.startswith(QUEUES) or name in ("unacked", "unacked_index"):
            found["queues" if name.startswith(QUEUES) else name] += _size(server, key)
    return dict(found)


def _size(server: servers.Server, key: bytes) -> int:
    kind = server.ask("TYPE", key)
    return int(server.ask(_SIZE[kind], key)) if kind in _SIZE else 0  # it is gone meanwhile


_KINDS: dict[str, Callable[[Path], AbstractContextManager[Store]]] = {
    "redis": _redis,
    "sentinel": _sentinel,
    "cluster": _cluster,
    "sqlite": _sqlite,
    "rabbitmq": _rabbitmq,
    "stock": _stock,
}


def let_pass(chance: random.Random, kind: str) -> None:
    """How long a store stays hurt: a moment or two, sometimes longer than a call waits for its answer."""
    time.sleep(chance.uniform(0.5, 6.0) if kind in ("freeze", "cut", "restart") else chance.uniform(0.5, 2.0))
