"""What happens when a worker of an events app starts: queues, topology, and a look at how it was started."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from celery import signals
from kombu import Exchange, Queue, binding

from postroom.celery.events.declaring import declare
from postroom.celery.events.topology import EXCHANGE
from postroom.errors import InvalidInput, PostroomError

if TYPE_CHECKING:
    from postroom.celery.events.app import EventsApp

log: logging.Logger = logging.getLogger(__name__)

_TRANSPORTS = {
    "amqp": "postroom.celery.events.amqp:Transport",
    "pyamqp": "postroom.celery.events.amqp:Transport",
    "amqps": "postroom.celery.events.amqp:SSLTransport",
}
#: That of the transport; see postroom.celery.options.
_DELIVERY_LIMIT = 20
_CHATTER = ("without_mingle", "without_gossip", "without_heartbeat")


def listen(app: EventsApp) -> None:
    """Be told by Celery's signals; nothing of it happens in a process that is no worker."""
    loud: list[bool] = []

    def on_options(instance: Any = None, options: Any = None, **_: Any) -> None:
        if instance is not None and instance.app is app:
            loud[:] = [not all((options or {}).get(name) for name in _CHATTER)]
            _guarded(lambda: _add_queues(app))

    def on_worker(sender: Any = None, **_: Any) -> None:
        if sender is not None and sender.app is app:
            _guarded(lambda: _prepare(app))

    def on_ready(sender: Any = None, **_: Any) -> None:
        if sender is not None and sender.app is app and any(loud):
            _warn_of_chatter()

    def on_stopping(**_: Any) -> None:
        app.stopping = True

    app.on_after_configure.connect(lambda **_: _choose_transport(app), weak=False)
    signals.celeryd_init.connect(on_options, weak=False)
    signals.worker_init.connect(on_worker, weak=False)
    signals.worker_ready.connect(on_ready, weak=False)
    signals.worker_shutting_down.connect(on_stopping, weak=False)


def _guarded(act: Callable[[], None]) -> None:
    """Celery logs what a signal raises and goes on; a worker without its queues must not."""
    try:
        act()
    except PostroomError as error:
        # Nothing is logged as early as this, so the interpreter says it.
        raise SystemExit(f"this worker cannot start: {error}") from error


def _choose_transport(app: EventsApp) -> None:
    url = app.conf.broker_write_url or app.conf.broker_url or "amqp://"
    first = url if isinstance(url, str) else next(iter(url), "amqp://")
    transport = _TRANSPORTS.get(first.partition("://")[0])
    if transport and not app.conf.broker_transport:
        app.conf.broker_transport = transport
        # Also what is sent as a plain task has arrived when its caller goes on.
        options = app.conf.broker_transport_options or {}
        app.conf.broker_transport_options = {"confirm_publish": True, **options}
        _keep_celerys_queues(app)


def _keep_celerys_queues(app: EventsApp) -> None:
    """Have the queues of Celery's own messages outlive a connection, for the seconds until they expire.

    RabbitMQ 4.3 takes them either so or as exclusive ones. An exclusive one belongs to its connection until
    RabbitMQ has noticed that this is dead, which may take minutes: so long its worker could not begin anew.
    """
    for kind in ("control", "event"):
        durable, exclusive = f"{kind}_queue_durable", f"{kind}_queue_exclusive"
        if not {durable, exclusive} & set(app.conf.changes):
            app.conf.update({durable: True, exclusive: False})


def _warn_of_chatter() -> None:
    log.warning(
        "workers of events need no mingle, gossip and heartbeat, which cost N² messages for N workers: start "
        "them by `postroom events worker`, or with --without-mingle --without-gossip --without-heartbeat",
        extra={"event": "events.chatter"},
    )


def _add_queues(app: EventsApp) -> None:
    """Beside the queues that are configured, those of the handlers."""
    if app.conf.result_backend:
        raise InvalidInput("result_backend: an event has no one result; leave it empty in an events app")
    own = app.conf.task_queues or {}
    queues = dict(own) if isinstance(own, Mapping) else {queue.name: queue for queue in own}
    for queue in _queues(app):
        queues.setdefault(queue.name, queue)
    if _has_plain_tasks(app):
        queues.setdefault(app.conf.task_default_queue, Queue(app.conf.task_default_queue))
    app.conf.task_queues = queues
    if not app.on_rabbitmq:
        _allow_retries(app)


def _allow_retries(app: EventsApp) -> None:
    """An engine gives up after so many deliveries; a handler may ask for more retries than that."""
    most = [app.tasks[name].max_retries for name in app.handlers]
    limit = max([_DELIVERY_LIMIT, *(retries + 1 for retries in most if retries is not None)])
    app.conf.broker_transport_options = {
        "delivery_limit": limit, **(app.conf.broker_transport_options or {}),
    }  # fmt: skip


def _has_plain_tasks(app: EventsApp) -> bool:
    return any(not name.startswith("celery.") and name not in app.handlers for name in app.tasks)


def _queues(app: EventsApp) -> list[Queue]:
    """As Celery consumes them. On RabbitMQ they are declared here, with their ladder, and not by Celery."""
    exchange = Exchange(EXCHANGE, "topic")
    return [
        Queue(
            name, exchange, routing_key=patterns[0], no_declare=app.on_rabbitmq,
            bindings=[binding(exchange, routing_key=pattern) for pattern in patterns],
        )
        for name, patterns in app.handlers.queues.items()
    ]  # fmt: skip


def _prepare(app: EventsApp) -> None:
    """A worker inside another program, such as a test, sends no signal before; its queues come from here."""
    _add_queues(app)
    for queue in _queues(app):
        if queue.name not in app.amqp.queues:
            app.amqp.queues.select_add(queue)
    if app.on_rabbitmq:
        with app.connection_for_write() as connection:
            connection.ensure_connection(_say_away, max_retries=app.conf.broker_connection_max_retries)
            declare(connection, app.topology)


def _say_away(error: Exception, pause: float) -> None:
    """Nothing is logged as early as this, and a worker that waits without a word seems to hang."""
    sys.stderr.write(f"RabbitMQ cannot be reached: {error}; the next try is in {pause:g} s\n")
    sys.stderr.flush()
