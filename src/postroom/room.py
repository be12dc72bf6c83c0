"""The Python door: `room = postroom.open(url)`, an engine with its policies."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from postroom.addresses import meant_by
from postroom.delivery import Delivery
from postroom.duration import Duration, milliseconds
from postroom.engine import ClaimRequest, Engine, QueueInfo
from postroom.errors import Closed, ConfigError, MissingExtra, PostroomError
from postroom.history import Lifecycle
from postroom.model import Accepted, Claimed, Entry, NewMessage, Receipt, Settlement, Turned
from postroom.policies import Policies
from postroom.policy import Policy
from postroom.queue import Queue, Unset
from postroom.rotation import Order, Rotation
from postroom.search import Found, across
from postroom.stats import Memory, QueueStats
from postroom.suspects import SuspectSlot
from postroom.waiter import Waiter

if TYPE_CHECKING:
    from types import ModuleType
    from urllib.parse import SplitResult

    from postroom.config import Config
    from postroom.staff import Word, WorkerInfo
    from postroom.telemetry import Sla

#: URL scheme → module of `postroom.engines`. Imported only when such a URL is opened.
_REDIS = ("redis", "rediss", "valkey", "valkeys")
_ENGINES = {"sqlite": "sqlite", "memory": "memory", **dict.fromkeys(_REDIS, "redis")} | {
    f"{scheme}+{way}": "redis" for scheme in _REDIS for way in ("sentinel", "cluster", "socket")
}
#: The engine that stands between another and its spool.
_SPOOL = "spool"

Hook = Callable[[NewMessage, Queue], NewMessage | None]


def open(
    url: str | None = None, *, config: Config | None = None, declare: bool = True, **settings: Any
) -> Room:
    """Open the room behind a URL; without one, as postroom.toml and POSTROOM_URL say.

    `settings` beat the file and the environment, e.g. `open("memory://", poll_timeout="1s")`. Unless
    `declare` is false, the queues of the file promise from now on what it says, to everybody.
    Raises ConfigError for anything unknown, and EngineUnavailable when the store is not there.
    """
    from postroom.config import load  # here and not above: a room may be made without it

    if config is None:
        config = load(**settings) if url is None else load(url=url, **settings)
    elif settings:
        raise ConfigError("open takes a config or settings, not both")
    engine = _connect(url or config.url, config)
    if config.telemetry or config.tracing:
        from postroom.telemetry import Observed  # here and not above: who measures nothing loads nothing

        engine = Observed(engine, traced=config.tracing)
    return Room(engine, config, declare=declare)


def _connect(url: str, config: Config) -> Engine:
    parts, module = _module(url)
    if config.durability == "replicated":
        parts = _replicated(parts, config)
    primary = functools.partial(module.connect, parts, config.max_body)
    return primary() if config.spool is None else _spooled(primary, module, config)


def _replicated(parts: SplitResult, config: Config) -> SplitResult:
    """The URL of a store that waits for a replica after each put: these are options of it."""
    if _ENGINES[parts.scheme] != "redis":
        raise ConfigError('durability: only Redis has replicas; elsewhere it is "stored"')
    if config.spool and config.replication_timeout >= config.health_check_timeout:
        raise ConfigError("replication_timeout: must be shorter than health_check_timeout")
    options = f"&durability=replicated&replication_timeout={config.replication_timeout}ms"
    return parts._replace(query=parts.query + options)


def _spooled(primary: Callable[[], Engine], module: ModuleType, config: Config) -> Engine:
    """The engine, with a local one that takes over while it is away."""
    assert config.spool is not None
    parts, spool_module = _module(config.spool)
    spool = spool_module.connect(parts, config.max_body)
    if not spool.capabilities.durable:
        spool.close()
        raise ConfigError("spool: must outlive its process, such as sqlite:///spool.db")
    made: Engine = importlib.import_module(f"postroom.engines.{_SPOOL}").SpoolEngine(
        primary,
        spool,
        timeout=config.health_check_timeout,
        capacity=config.spool_capacity,
        max_bytes=config.spool_bytes,
        max_body=config.max_body,
        # Without a better word, whatever failed may have been done.
        uncertain=getattr(module, "is_uncertain", lambda error: True),
    )
    return made


def _module(url: str) -> tuple[SplitResult, ModuleType]:
    """The parts of a URL, and the module of its engine."""
    parts, module = read_url(url)
    try:
        return parts, importlib.import_module(f"postroom.engines.{module}")
    except ImportError as error:
        if error.name and error.name.startswith("postroom"):
            raise  # nothing is missing but a part of ours
        raise MissingExtra(f"pip install 'postroom[{module}]' ({error})") from error


def read_url(url: str) -> tuple[SplitResult, str]:
    """The parts of a URL and the engine it stands for. Raises ConfigError, without opening anything."""
    from urllib.parse import urlsplit  # here and not above, as pathlib in config: 6 ms of every import

    try:
        parts = urlsplit(url)
    except ValueError:  # its text is not repeated: it quotes what stands before the @
        raise ConfigError(f"url: the one that begins with {_scheme(url)} cannot be read") from None
    module = _ENGINES.get(parts.scheme)
    if module is None or "://" not in url:
        known = ", ".join(f"{scheme}://" for scheme in _ENGINES)
        meant = meant_by(url.partition(":")[0], _ENGINES)
        raise ConfigError(f"url: there is no engine for {_scheme(url)}{meant}; this release has {known}")
    return parts, module


def _scheme(url: str) -> str:
    # Never more of a URL than this in a message: it may hold a password.
    scheme, colon, _ = url.partition(":")
    return repr(scheme[:20] if colon and "@" not in scheme else "")


class Health(NamedTuple):
    """Whether the engine answers, and how fast (milliseconds)."""

    ok: bool
    latency: float
    error: str = ""


class RoomStats(msgspec.Struct, frozen=True, kw_only=True):
    """How the whole room stands."""

    queues: list[QueueStats]
    shutdown: bool
    health: Health
    #: Queues that were not asked for.
    left_out: int = 0
    #: With a spool: whether the store itself is in use, and how many messages wait in the spool.
    redis_active: bool | None = None
    spooled: int = 0
    #: How full the memory of the store is, if it has one to fill: see `Engine.memory`.
    memory: Memory | None = None

    @property
    def depth(self) -> int:
        return sum(queue.depth for queue in self.queues)


class Room:
    """An open engine with its policies. Threads may share it; close it, or use it with `with`."""

    def __init__(self, engine: Engine, config: Config, *, declare: bool = True) -> None:
        self.engine = engine
        self.config = config
        self.consumer: str = f"{os.uname().nodename}:{os.getpid()}"
        self.hooks: list[Hook] = []
        self.suspect: SuspectSlot = SuspectSlot(self._ring)
        #: When a queue was last warned about (monotonic seconds).
        self.warned: dict[str, float] = {}
        self._shutdown = False
        self._closed = False
        self._claims = itertools.count()
        self._policies = Policies(engine, config.policy)
        self._waiters: weakref.WeakSet[Waiter] = weakref.WeakSet()
        #: Queues with messages that came in by the caller's own transactions.
        self._to_ring: set[str] = set()
        self._lock = threading.Lock()
        for name, policy in config.declared.items() if declare else ():
            engine.declare(name, policy)

    # --- queues -----------------------------------------------------------------------------

    def queue(self, name: str, policy: Policy | None = None) -> Queue:
        """The queue of this name; with a policy, the queue promises that from now on, to everybody.

        A policy is taken as a whole: it replaces what the configuration or an earlier one said.
        """
        queue = Queue(self, name)
        if policy is not None:
            queue.declare(policy)
        return queue

    def queues(self) -> list[QueueInfo]:
        return self.engine.queues()

    def search(
        self, match: Callable[[Entry], bool], queues: Iterable[str] | None = None, **bounds: Any
    ) -> Found:
        """Messages of these queues, or of all, that `match`; bounded as `postroom.search.across` says."""
        names = [info.name for info in self.queues()] if queues is None else queues
        return across(self.engine, names, match, **bounds)

    def policy(self, queue: str, *, declare: bool = True, among: Sequence[str] = ()) -> Policy:
        """What this queue promises; one that nobody declared promises what the configuration says.

        And is declared so by that, unless that has to wait because the caller is in a transaction.
        `among`: queues whose policies the caller will want too; the store is asked for all at once.
        """
        return self._policies.of(queue, declare=declare, among=among)

    def forget_policy(self, queue: str) -> None:
        """Ask the store, not the memory, what this queue promises the next time."""
        self._policies.forget(queue)

    def before_put(self, hook: Hook) -> Hook:
        """Have every message pass through `hook(message, queue)` before it is put.

        It returns a changed copy (`message.replace(priority=9)`) or None to leave it, and refuses
        by raising `Refused` (or any error): then nothing is put. Usable as a decorator.
        """
        self.hooks.append(hook)
        return hook

    # --- claim ------------------------------------------------------------------------------

    def claim(
        self,
        queues: Sequence[str] | Rotation,
        *,
        n: int = 1,
        timeout: Duration | Unset | None = "configured",
        order: Order = "round_robin",
    ) -> list[Delivery]:
        """Up to `n` messages of the first queue that has any; waits up to `timeout` for one.

        Round robin, every call begins with another queue. Pass a `Rotation` to go exactly by who gave.
        """
        rotation = queues if isinstance(queues, Rotation) else self._next_rotation(queues, order)
        end = self.end_of(timeout)
        waiter: Waiter | None = None
        try:
            while True:
                closing = self._shutdown  # asked before the claim: what was put before is still given out
                deliveries, wake = self._claim_any(rotation, n, waiter)
                left = float("inf") if end is None else end - time.monotonic()
                if deliveries or left <= 0 or closing:
                    return deliveries
                if waiter is None:
                    # Armed first, asked again then: what comes in between rings.
                    waiter = self.waiter(rotation.queues)
                    waiter.arm()
                else:
                    waiter.wait(min(left, wake / 1_000, self.config.poll_timeout / 1_000))
        finally:
            if waiter:
                waiter.close()

    def _claim_any(self, rotation: Rotation, n: int, waiter: Waiter | None) -> tuple[list[Delivery], int]:
        wake = self.config.poll_timeout
        for queue in rotation.sequence():
            request = ClaimRequest(n=n, consumer=f"{self.consumer}/{threading.get_ident()}", waiter=waiter)
            deliveries, claimed = self.take(queue, request)
            if deliveries:
                rotation.gave(queue)
                return deliveries, 0
            wake = min(wake, claimed.next_wake)
        return [], wake

    def take(self, queue: str, request: ClaimRequest) -> tuple[list[Delivery], Claimed]:
        """One claim, as deliveries; it brings a suspect only if this process works on none."""
        deliveries, turned = self.turn(queue, (), (), request)
        return deliveries, turned.claimed

    def turn(
        self,
        queue: str,
        settlements: Sequence[Settlement],
        starts: Sequence[Receipt],
        request: ClaimRequest | None,
    ) -> tuple[list[Delivery], Turned]:
        """One turn of the engine, what it claimed as deliveries."""
        if request is None:
            return [], self.engine.turn(queue, settlements, starts, None)
        policy = self.policy(queue)  # before the claim: what was claimed must not be lost to an error
        reserved = request.suspects and self.suspect.reserve()
        deliveries: list[Delivery] = []
        try:
            if not reserved:
                request = msgspec.structs.replace(request, suspects=False)
            turned = self.engine.turn(queue, settlements, starts, request)
            deliveries = self._deliveries(turned.claimed, policy, request.lease)
            return deliveries, turned
        finally:
            if reserved:
                self.suspect.fill(deliveries)

    def _deliveries(self, claimed: Claimed, policy: Policy, lease: int | None) -> list[Delivery]:
        engine, give_back = self.engine, self.suspect.give_back
        return [
            Delivery(leased, engine, policy, lease=lease, on_settled=give_back if leased.suspect else None)
            for leased in claimed.deliveries
        ]

    def _next_rotation(self, queues: Sequence[str], order: Order) -> Rotation:
        rotation = self.rotation(queues, order)
        rotation.begin_at(next(self._claims))
        return rotation

    def rotation(self, queues: Sequence[str], order: Order = "round_robin", **options: Any) -> Rotation:
        return Rotation(queues, order, urgency=self._urgency, **options)

    def _urgency(self, queue: str) -> int:
        """The priority of the queue's next message; below all priorities if it has none."""
        priority = self.engine.stats(queue).next_priority
        return -1 if priority is None else priority

    def waiter(self, queues: Sequence[str]) -> Waiter:
        """A waiter that also wakes when this room is shut down."""
        waiter = self.engine.waiter(queues)
        with self._lock:
            self._waiters.add(waiter)
        return waiter

    def end_of(self, timeout: Duration | Unset | None) -> float | None:
        """When a wait with this timeout is over, on the monotonic clock; None: never."""
        if timeout is None:
            return None
        span = self.config.poll_timeout if timeout == "configured" else milliseconds(timeout, "timeout")
        return time.monotonic() + span / 1_000

    # --- a transaction of the caller's own --------------------------------------------------

    def put_within(
        self, connection: object, queue: str, messages: Sequence[NewMessage], policy: Policy
    ) -> Accepted:
        """Put as a part of the transaction of this connection; see `Queue.put`."""
        accepted = self.engine.put_within(connection, queue, messages, policy)
        with self._lock:
            self._to_ring.add(queue)
        return accepted

    def ring(self, *queues: str) -> None:
        """After the commit: tell who waits for what was put with a `connection`, or for these queues."""
        if not queues:
            with self._lock:
                queues = tuple(self._to_ring)
                self._to_ring.clear()
        self.engine.ring(queues)

    # --- the whole room ---------------------------------------------------------------------

    def health(self) -> Health:
        """Whether the store answers one small question, and how soon."""
        began, error = time.perf_counter(), ""
        try:
            self.engine.records.get("health", "health")
        except PostroomError as raised:
            error = str(raised)
        return Health(not error, (time.perf_counter() - began) * 1_000, error)

    def stats(self, most: int | None = None) -> RoomStats:
        """Every queue (the first `most`), whether the room is shut down, whether the engine answers, and what
        a spool says."""
        began, error, queues, memory, left_out = time.perf_counter(), "", list[QueueStats](), None, 0
        try:
            names = sorted(info.name for info in self.engine.queues())
            queues = [self.engine.stats(name) for name in names[:most]]
            left_out = len(names) - len(queues)
            memory = self.engine.memory()
        except PostroomError as raised:
            error = str(raised)
        side = self.engine.side() if hasattr(self.engine, "side") else None
        return RoomStats(
            queues=queues,
            shutdown=self._shutdown,
            health=Health(not error, (time.perf_counter() - began) * 1_000, error),
            left_out=left_out,
            redis_active=side.redis_active if side else None,
            spooled=side.spooled if side else 0,
            memory=memory,
        )

    def sla(self, over: Duration = "1h") -> list[Sla]:
        """How long the first attempts of every queue waited, against `sla_p95`; needs telemetry somewhere."""
        from postroom.telemetry import read_sla

        return read_sla(self.engine, milliseconds(over, "over"))

    def workers(self) -> list[WorkerInfo]:
        """Who works in this room, in whatever process, and who was lost within the last minutes."""
        from postroom.staff import read_workers

        return read_workers(self.engine)

    def tell_worker(self, who: str, word: Word, reason: str = "") -> WorkerInfo:
        """Tell a worker, by its id or its name, to be quiet, to resume or to stop; see `postroom.staff`."""
        from postroom.staff import tell

        return tell(self.engine, who, word, reason)

    def lifecycle(self, queues: list[str] | str | None = None, **cursors: Any) -> Lifecycle:
        """Follow what happens in these queues, or in all."""
        return Lifecycle(self.engine, [queues] if isinstance(queues, str) else queues, **cursors)

    def shutdown(self) -> None:
        """Take no more messages; claims give out what is ready, and then None instead of waiting."""
        self._shutdown = True
        self._ring()

    @property
    def is_shutdown(self) -> bool:
        return self._shutdown

    def check_open(self) -> None:
        if self._shutdown:
            raise Closed("the room is shut down: it takes no more messages")

    def close(self) -> None:
        """Shut down and give up the engine. Closing twice is fine."""
        self.shutdown()
        if not self._closed:
            self._closed = True
            self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _ring(self) -> None:
        with self._lock:
            waiters = list(self._waiters)
        for waiter in waiters:
            waiter.ring()
