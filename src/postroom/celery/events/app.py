"""The Celery app of a service that publishes and handles events."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec

from celery import Celery
from celery.app.defaults import SETTING_KEYS

from postroom.celery.events import archive, archiving, settings, standing, starting
from postroom.celery.events.declaration import Event
from postroom.celery.events.envelope import Headers
from postroom.celery.events.handled import Handled
from postroom.celery.events.handlers import Handlers
from postroom.celery.events.handling import EventTask
from postroom.celery.events.intake import LEFT, Intake
from postroom.celery.events.names import check_event, check_group, check_pattern, check_service
from postroom.celery.events.publisher import ConfirmingPublisher, Outgoing, Publisher, StorePublisher
from postroom.celery.events.topology import Names, Topology, build, wants
from postroom.celery.events.watching import Watch, Watching
from postroom.errors import InvalidInput
from postroom.model import Failure
from postroom.room import Room
from postroom.services import ServiceLetters, Standing

if TYPE_CHECKING:
    from postroom.celery.events.outbox import Outbox

P = ParamSpec("P")
_OURS = frozenset(
    {"queues", "rungs", "fine", "archive", "archive_retention", "archive_most", "max_retries", "unrouted",
     "queue_type", "topology_version"}
)  # fmt: skip
_RESULTS = ("result_backend", "backend")


def events_app(service: str, **config: Any) -> EventsApp:
    """The app of a service: Celery's, with `@app.event` and `@app.handler`.

    `config` is Celery's (`broker_url`, `imports` …) and ours:

    queues            "event" (default): a queue for each; "one": one for all. A handler may name a `group`
    max_retries       10, or POSTROOM_EVENTS_MAX_RETRIES; a handler may say otherwise
    rungs, fine       of the retry ladder on RabbitMQ: how many of whole seconds; also below a second
    archive, archive_retention, archive_most     whether and how long and how many failed events are kept
    unrouted          "warn" (default) or "error": what to do about an event that no service is bound to
    queue_type        "quorum" (default) or "classic"
    topology_version  the next number when a setting changes the arguments of queues that exist

    It needs no broker to be made, and declares nothing before a worker starts or an event is published.
    Raises InvalidInput or ConfigError.
    """
    check_service(service)
    if any(config.get(name) for name in _RESULTS):
        raise InvalidInput(
            "result_backend: an event is handled by any number of services, so it has no one result"
        )
    if unknown := sorted(set(config) - _OURS - set(SETTING_KEYS) - set(_RESULTS)):
        raise InvalidInput(f"events_app() has no setting {', '.join(unknown)}, nor has Celery")
    ours = {name: value for name, value in config.items() if name in _OURS}
    rest = {name: value for name, value in config.items() if name not in _OURS and name not in _RESULTS}
    return EventsApp(service, settings.read(**ours), rest)


class EventsApp(Celery):
    """See `events_app`."""

    def __init__(self, service: str, given: settings.Settings, config: dict[str, Any]) -> None:
        super().__init__(service, changes=config, set_as_current=False)
        self.service = service
        self.given = given
        self.names: Names = Names(service, given.version)
        self.declared: dict[str, Event[Any]] = {}
        self.handlers: Handlers = Handlers(self.names, one_queue=given.one_queue)
        self.handled: Handled = Handled()
        self.watch: Watch = Watch(self)
        #: Whether the worker in this process was told to stop.
        self.stopping: bool = False
        self.add_defaults({**settings.DEFAULTS, "task_default_queue": service})
        self.steps["consumer"].add(Intake)
        self.steps["worker"].add(Watching)
        starting.listen(self)

    def __reduce__(self) -> Any:
        raise TypeError("an events app cannot be sent to another process; import it there")

    # --- declaring --------------------------------------------------------------------------

    def event(self, name: str, *, version: int = 1) -> Callable[[Callable[P, Any]], Event[P]]:
        """Declare an event: calling the decorated function checks its arguments, and publishes."""
        check_event(name)
        if name in self.declared:
            raise InvalidInput(f"event {name}: {self.declared[name].__module__} declares it already")

        def decorate(body: Callable[P, Any]) -> Event[P]:
            made = self.declared[name] = Event(self, name, version, body)
            return made

        return decorate

    def handler(
        self, *patterns: str, group: str | None = None, **options: Any
    ) -> Callable[[Callable[..., Any]], Any]:
        """Have a function handle events: a Celery task, with all options of `@app.task`."""
        for pattern in patterns:
            check_pattern(pattern)
        if not patterns:
            raise InvalidInput(
                "handler: name at least one event, such as @app.handler('billing.invoice.paid')"
            )
        if group is not None:
            check_group(group)

        def decorate(function: Callable[..., Any]) -> Any:
            if not callable(function):
                raise InvalidInput(f"handler of {patterns[0]}: decorate a function, not {function!r:.80}")
            name = options.pop("name", None) or self.gen_task_name(function.__name__, function.__module__)
            self.handlers.add(name, patterns, group)
            # Not shared: else every other Celery app of the process would have it as a task of its own.
            usual = {"base": EventTask, "max_retries": self.given.max_retries, "shared": False}
            return self.task(name=name, **{**usual, **options})(function)

        return decorate

    # --- what the worker asks ---------------------------------------------------------------

    def handlers_of(self, event: str) -> list[str]:
        return self.handlers.of(event)

    def queue_of(self, event: str) -> str:
        return self.handlers.queue_of(event)

    @cached_property
    def on_rabbitmq(self) -> bool:
        """Whether the broker is RabbitMQ; else it is a Postroom engine, which has delays by itself."""
        return bool(self.connection_for_write().transport.driver_type == "amqp")

    @property
    def topology(self) -> Topology:
        """What this service has on RabbitMQ, with the handlers that are declared by now."""
        given = self.given
        return build(self.names, self.handlers.queues, given.ladder, given.archive, given.queue_type)

    # --- what a door asks -------------------------------------------------------------------

    @property
    def keeps_letters(self) -> bool:
        """Whether what fails for good is kept; an engine always does."""
        return self.given.archive is not None or not self.on_rabbitmq

    def standing(self) -> Standing:
        """How many events wait where. Raises EngineUnavailable."""
        return standing.look(self)

    def letters(self, store: Room) -> AbstractContextManager[ServiceLetters]:
        """The archive as dead letters, with the notes in `store`; see `archive.letters`."""
        return archive.letters(self, store)

    # --- sending ----------------------------------------------------------------------------

    @cached_property
    def publisher(self) -> Publisher:
        kind = ConfirmingPublisher if self.on_rabbitmq else StorePublisher
        return kind(self, unrouted_is_error=self.given.unrouted_is_error)

    @cached_property
    def outbox(self) -> Outbox:
        from postroom.celery.events.outbox import Outbox  # here and not above: it needs SQLAlchemy

        return Outbox()

    def climb(self, message: tuple[Headers, bytes], event: str, delay: float) -> None:
        """Send a message to the ladder: it is back in the queue of its event after so long (ms)."""
        headers, body = message
        rungs, left = self.given.ladder.climb(delay)
        told = {**headers, **{wants(rung): True for rung in rungs[1:]}}
        if left:
            told[LEFT] = left
        entry = self.names.rung(rungs[0]) if rungs else self.names.recover
        self.publisher.publish(Outgoing(entry, event, told, body))

    def archive(self, headers: Headers, body: bytes, failure: Failure) -> None:
        """Keep an event that is given up, with its failure; without an archive, say so in the log."""
        archiving.keep(self, headers, body, failure)
