"""The worker: runs handlers on the messages of some queues until it is told to stop."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import msgspec

from postroom.breaker import Breaker
from postroom.delivery import Delivery
from postroom.duration import Duration, milliseconds
from postroom.errors import Closed, InvalidInput, PostroomError
from postroom.idempotency import idempotent, is_guarded
from postroom.keeper import Keeper
from postroom.limits import MAX_BATCH, check_between
from postroom.role import Role, Share
from postroom.room import Room
from postroom.rotation import Order, Rotation
from postroom.staff import Attendance, Word, WorkerInfo, this_process
from postroom.standing import states_here
from postroom.worker.crew import Around, Crew
from postroom.worker.dispatcher import Dispatcher
from postroom.worker.handlers import Handler, Handlers
from postroom.worker.heartbeat import Heartbeat

if TYPE_CHECKING:
    from postroom.telemetry.exporter import MetricsServer

log: logging.Logger = logging.getLogger(__name__)

#: Pauses between tries while the engine cannot be reached (seconds).
_RETRY_FIRST, _RETRY_LAST = 0.05, 1.0
#: A stop tries for so long to settle what has ended while the engine cannot be reached (seconds): the rest
#: is delivered again when its lease is over.
_SETTLE_PATIENCE = 3.0
#: The longest sleep (seconds): a signal that comes just before one is noticed only after it.
_NAP = 1.0


class Worker:
    """Works on queues until it is stopped.

    handlers      a function for each queue, `def handler(delivery)`, or `Handlers`; more with `handle`
    queues        what to work on, if other than the queues with a handler
    concurrency   how many handlers run at once, each on its own thread
    prefetch      how many messages to hold unstarted; None: as many as will begin within a moment
    shares        what a queue may have of this worker, e.g. `{"reports": Share(concurrency=2)}`
    order         the order between queues: round_robin, listed, priority or weighted (by `weights`)
    around        a context manager for every job, e.g. a database session; its value is `delivery.context`
    breakers      breakers by queue: while one is open nothing is claimed from its queue, half open its probes
    stop_timeout  how long a stop waits for running handlers (and then 3 s at most for a store that is away)
    keeper        whether to be a candidate for the room's keeper too
    metrics_port  serve `/metrics` for Prometheus there (0: any free port, see `metrics`), on `metrics_host`
    name, role    what `room.workers()` calls it

    `last_exceptions` keeps the newest 100 errors of handlers, for tests and for people.
    """

    def __init__(
        self,
        room: Room,
        handlers: Mapping[str, Handler] | Handlers | None = None,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int = 1,
        prefetch: int | None = None,
        shares: Mapping[str, Share] | None = None,
        order: Order = "round_robin",
        weights: Mapping[str, int] | None = None,
        around: Around | None = None,
        breakers: Mapping[str, Breaker] | None = None,
        stop_timeout: Duration = "30s",
        keeper: bool = True,
        metrics_port: int | None = None,
        metrics_host: str = "127.0.0.1",
        name: str = "",
        role: str = "",
    ) -> None:
        check_between("concurrency", concurrency, 1, MAX_BATCH)
        if prefetch is not None:
            check_between("prefetch", prefetch, 0, MAX_BATCH)
        if not isinstance(room, Room):
            raise InvalidInput(f"room: expected what postroom.open gives, not {room!r:.80}")
        self.room = room
        self.name: str = name or f"{room.consumer}/{role or 'worker'}"
        self.role: str = role
        self.last_exceptions: deque[dict[str, str]] = deque(maxlen=100)
        registered = handlers if isinstance(handlers, Handlers) else Handlers(handlers)
        self._handlers = registered.guarded(self._guard)
        self._queues = queues
        self._order: Order = order
        self._weights = weights
        self._around = self._surroundings(around)
        self._breakers = {**registered.breakers(queues or registered.queues), **(breakers or {})}
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._shares = dict(shares or {})
        self._stop_timeout = milliseconds(stop_timeout, "stop_timeout") / 1_000
        self._with_keeper = keeper
        self._open_metrics = None if metrics_port is None else self._metrics_at(metrics_port, metrics_host)
        self.metrics: MetricsServer | None = None
        self._stopping = threading.Event()
        self._quiet = threading.Event()
        self._running = threading.Lock()
        self._signalled_before = False
        self._dispatcher: Dispatcher | None = None
        self._crew: Crew | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def for_role(
        cls, room: Room, role: Role, handlers: Mapping[str, Handler] | Handlers, **options: Any
    ) -> Self:
        """A worker with exactly the settings of this role; `options` are what a role does not say.

        Raises InvalidInput when a queue of the role has no handler at all: each of its messages would
        become a dead letter.
        """
        made = handlers if isinstance(handlers, Handlers) else Handlers(handlers)
        if missing := [queue for queue in role.queues if not made.serves(queue)]:
            raise InvalidInput(f"role {role.name!r}: there is no handler for {', '.join(missing)}")
        return cls(
            room,
            made,
            queues=role.queues,
            concurrency=role.concurrency,
            prefetch=role.prefetch,
            shares=role.shares,
            order=role.order,
            weights=role.weights,
            **{"stop_timeout": role.stop_timeout / 1_000, "role": role.name, **options},
        )

    def handle(self, queue: str | None = None, kind: str | None = None) -> Callable[[Handler], Handler]:
        """Register a handler for a queue, for a kind, or for a kind of one queue. A decorator.

        A message without a handler of its own becomes a dead letter: no message can name code.
        """
        return self._handlers.handle(queue, kind)

    def _guard(self, handler: Handler) -> Handler:
        """A handler as it is run: once for each message, if the configuration says so of every task."""
        config = self.room.config
        if not config.idempotency_every_task or is_guarded(handler):
            return handler
        return idempotent(ttl=config.idempotency_ttl / 1_000)(handler)

    # What only some workers need is loaded by these two, not later in the thread that works: a program that
    # forks while a thread imports leaves its child waiting for that import for ever.

    def _surroundings(self, around: Around | None) -> Around | None:
        """What is around every job: its span, if the room is traced, and inside it what the user wants."""
        if not self.room.config.tracing:
            return around
        from postroom.telemetry.tracing import around as traced

        return traced(around)

    def _metrics_at(self, port: int, host: str) -> Callable[[], MetricsServer]:
        from postroom.telemetry.exporter import MetricsServer, Own

        return lambda: MetricsServer(self.room, port, host, lambda: Own(states_here()))

    # --- running ----------------------------------------------------------------------------

    def run(self, *, drain: bool = False) -> None:
        """Work until stopped, by `stop`, SIGTERM or SIGINT; or until the room is shut down and empty.

        With `drain`, until nothing is ready any more; what is scheduled, a retry too, is not waited for.
        What was not begun is handed back.
        """
        with self._signals():  # first: whoever sees its metrics may ask it to stop
            rotation, ending = self._begin()
            self._work(rotation, drain, ending)

    def start(self) -> Self:
        """Work in a daemon thread until `stop`."""
        rotation, ending = self._begin()
        work = (rotation, False, ending)
        self._thread = threading.Thread(target=self._work, args=work, name="postroom-worker", daemon=True)
        self._thread.start()
        return self

    def stop(self, *, wait: bool = True) -> None:
        """Claim no more, hand back what was not begun, wait for what runs, settle it.

        Without `wait`, or called by a handler (which cannot wait for its own end), only ask for that.
        """
        self._ask_to_stop()
        current, crew = threading.current_thread(), self._crew
        if wait and self._thread and self._thread is not current and not (crew and current in crew):
            self._thread.join()

    def quiet(self) -> None:
        """Claim no more and hand back what was not begun, but stay: what runs is finished and settled."""
        self._quiet.set()
        self._look_up()

    def resume(self) -> None:
        """Claim again after `quiet`."""
        self._quiet.clear()
        self._look_up()

    def _hear(self, word: Word) -> None:
        """Do what `room.tell_worker` said."""
        match word:
            case "quiet":
                self.quiet()
            case "resume":
                self.resume()
            case "stop":
                self.stop(wait=False)

    @property
    def state(self) -> str:
        """`working`, `quiet` or `stopping`."""
        return "stopping" if self._stopping.is_set() else "quiet" if self._quiet.is_set() else "working"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _ask_to_stop(self) -> None:
        self._stopping.set()
        self._look_up()

    def _look_up(self) -> None:
        """Have the thread that works look what it is asked to do."""
        if dispatcher := self._dispatcher:
            dispatcher.interrupt()

    def _begin(self) -> tuple[Rotation, contextlib.ExitStack]:
        """What to work on, and what ends that; whatever can be wrong is raised here, not in a thread where
        nobody sees it: InvalidInput, or ConfigError for a port that is taken."""
        queues = self._queues or self._handlers.queues
        if unknown := self._breakers.keys() - set(queues):
            raise InvalidInput(f"breakers: this worker has no queue {', '.join(sorted(unknown))}")
        rotation = self.room.rotation(queues, self._order, weights=self._weights)
        if not self._running.acquire(blocking=False):
            raise InvalidInput("this worker runs already")
        with contextlib.ExitStack() as ending:
            ending.callback(self._end)
            crew = Crew(self._concurrency, self._handlers, self._around, self._note_error, self._wake)
            limits = (self._concurrency, self._prefetch, self._shares)
            dispatcher = Dispatcher(self.room, rotation, crew, *limits, self.name, self._breakers)
            self._dispatcher, self._crew = dispatcher, crew
            ending.callback(dispatcher.close)
            self._serve_metrics(ending)
            return rotation, ending.pop_all()

    def _end(self) -> None:
        self._dispatcher = self._crew = None
        self._stopping.clear()
        self._quiet.clear()
        self._running.release()

    def _work(self, rotation: Rotation, drain: bool, ending: contextlib.ExitStack) -> None:
        dispatcher, crew = self._dispatcher, self._crew
        assert dispatcher and crew  # made when it began
        heartbeat = Heartbeat(self.room.engine, dispatcher.holding)
        with ending:
            self._attend(dispatcher, rotation.queues, ending)
            if self._with_keeper:
                keeper = Keeper(self.room, self.name)
                keeper.start()
                ending.callback(keeper.stop)
            heartbeat.start()
            ending.callback(heartbeat.stop)
            crew.start()
            ending.callback(lambda: crew.dismiss(wait=not dispatcher.busy))
            self._work_with(dispatcher, heartbeat, drain)

    def _serve_metrics(self, ending: contextlib.ExitStack) -> None:
        if self._open_metrics:
            self.metrics = ending.enter_context(self._open_metrics())

    def _attend(self, dispatcher: Dispatcher, queues: Sequence[str], ending: contextlib.ExitStack) -> None:
        """Show the room that somebody works here, until the end."""
        seen = msgspec.structs.replace(
            this_process(self.name),
            role=self.role,
            queues=tuple(queues),
            concurrency=self._concurrency,
            breakers={queue: breaker.name for queue, breaker in self._breakers.items()},
        )

        def look() -> WorkerInfo:
            held = dispatcher.holding()
            busy = sum(delivery.under_way for delivery in held)
            ids = tuple(delivery.id for delivery in held)
            failed = self._last_error()
            runs = self._crew.runs.told() if self._crew else ()
            return msgspec.structs.replace(
                seen, state=self.state, busy=busy, ids=ids, last_error=failed, runs=runs
            )

        attendance = Attendance(self.room.engine, look, self._hear)
        attendance.start()
        ending.callback(attendance.stop)

    def _last_error(self) -> str:
        if not self.last_exceptions:
            return ""
        last = self.last_exceptions[-1]
        return f"{last['type']}: {last['error']}"

    def _work_with(self, dispatcher: Dispatcher, heartbeat: Heartbeat, drain: bool) -> None:
        patience = self._stop_timeout
        try:
            self._rounds(dispatcher, heartbeat, drain)
        except KeyboardInterrupt:
            patience = 0.0
            raise
        finally:
            self._wind_up(dispatcher, patience)

    def _rounds(self, dispatcher: Dispatcher, heartbeat: Heartbeat, drain: bool) -> None:
        pause, claiming = _RETRY_FIRST, True
        while not self._stopping.is_set():
            if claiming is self._quiet.is_set():
                claiming = not claiming
                dispatcher.come_back() if claiming else dispatcher.let_go()
            leaving = drain or self.room.is_shutdown
            try:
                if pause > _RETRY_FIRST:
                    heartbeat.beat()  # the store was away: before anything else, we are alive
                    dispatcher.repeat()
                if not dispatcher.round(claiming=claiming):
                    if leaving and dispatcher.done():
                        return
                    dispatcher.rest(_NAP)
                pause = _RETRY_FIRST
            except Closed:
                return
            except Exception as error:  # not only ours: whatever an engine raises, the worker goes on
                _warn(error)
                self._stopping.wait(pause)
                pause = min(2 * pause, _RETRY_LAST)

    def _wind_up(self, dispatcher: Dispatcher, patience: float) -> None:
        """Hand back what no handler has begun, wait for the others, settle everything."""
        ended, away = time.monotonic(), False
        deadline = ended + patience
        dispatcher.let_go()
        while dispatcher.busy:
            now, worked = time.monotonic(), False
            if any(delivery.under_way for delivery in dispatcher.holding()):
                ended = now
            left = (min(deadline, ended + _SETTLE_PATIENCE) if away else deadline) - now
            try:
                worked = dispatcher.round(claiming=False)
                away = False
                if not worked and dispatcher.busy and left > 0:
                    dispatcher.rest(min(_NAP, left))
            except Closed:
                break
            except Exception as error:
                _warn(error)
                away = True
                time.sleep(min(_RETRY_FIRST, max(0.0, left)))
            if not worked and left <= 0:
                break
        if dispatcher.busy:
            ids = [delivery.id for delivery in dispatcher.holding()]
            log.error(
                "stopped with unfinished work, which comes back when its lease is over: %d messages",
                len(ids),
                extra={"event": "worker.unfinished", "count": len(ids), "ids": ids[:50]},
            )

    # --- what the parts call ----------------------------------------------------------------

    def _wake(self) -> None:
        if dispatcher := self._dispatcher:
            dispatcher.wake()

    def _note_error(self, delivery: Delivery, error: BaseException) -> None:
        self.last_exceptions.append(
            {
                "id": delivery.id,
                "queue": delivery.queue,
                "kind": delivery.kind,
                "correlation_id": delivery.correlation_id,
                "type": type(error).__name__,
                "error": str(error),
            }
        )

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT ask for a graceful stop; only the main thread may say so."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._signalled_before = False
        names = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(name, lambda *_: self._signalled()) for name in names]
        try:
            yield
        finally:
            for name, handler in zip(names, before, strict=True):
                signal.signal(name, handler)

    def _signalled(self) -> None:
        if self._signalled_before or self._stopping.is_set():
            raise KeyboardInterrupt  # asked a second time: at once
        self._signalled_before = True
        # Not from inside the handler: it may have interrupted a thread that holds the engine's lock.
        threading.Thread(target=self._ask_to_stop, daemon=True).start()


def _warn(error: Exception) -> None:
    expected = isinstance(error, PostroomError)
    extra = {"event": "worker.engine_failed", "error": str(error)}
    log.warning("engine failed: %s", error, exc_info=None if expected else error, extra=extra)
