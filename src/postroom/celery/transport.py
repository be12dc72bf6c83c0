"""The transport: what kombu and Celery know of Postroom."""

from __future__ import annotations

import logging
import socket
from typing import Any

from kombu.transport import virtual

import postroom
from postroom.celery import options
from postroom.celery.attendance import show_ourselves
from postroom.celery.channel import Channel
from postroom.celery.intake import Intake
from postroom.celery.office import Office
from postroom.celery.offices import office_of
from postroom.celery.presence import note_worker, worker_state
from postroom.celery.sparing import spare_producers
from postroom.errors import Closed, EngineUnavailable, Uncertain
from postroom.settings import without_secrets

log: logging.Logger = logging.getLogger(__name__)

#: A worker without an event loop that has tasks looks after them this often (seconds).
_ROUND = 0.025


class Transport(virtual.Transport):
    """Kombu's transport over any engine of Postroom.

    Its `driver_type` is redis's, because that is what Celery asks for before it lets workers talk to each
    other (mingle, gossip, events) and before it obeys `worker_disable_prefetch`.
    """

    Channel: Any = Channel
    can_parse_url = True
    driver_type = "redis"
    driver_name = "postroom"
    polling_interval: float | None = None
    default_port: int = 6379
    #: Not QueueFull: a full queue is the publisher's to know of, and no reconnect empties it.
    connection_errors: tuple[type[Exception], ...] = (
        *virtual.Transport.connection_errors,
        EngineUnavailable,
        Closed,
        ConnectionError,
    )
    recoverable_connection_errors: tuple[type[Exception], ...] = connection_errors
    channel_errors: tuple[type[Exception], ...] = virtual.Transport.channel_errors
    #: Kombu publishes again, under the same id: what is stored already is not stored twice.
    recoverable_channel_errors: tuple[type[Exception], ...] = (Uncertain,)
    implements: Any = virtual.Transport.implements.extend(
        asynchronous=True,
        batch_publish=True,
        exchange_type=frozenset(["direct", "topic", "fanout"]),
        heartbeats=False,
    )

    office: Office
    intake: Intake

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.polling_interval = None  # ours is a safety net, and kombu's would be a sleep
        self._loop: Any = None
        spare_producers(client)
        if self.has_alternates:
            _stay_on_postroom(client)

    @property
    def has_alternates(self) -> bool:
        """Whether there is another broker to turn to."""
        return len(getattr(self.client, "alt", None) or ()) > 1

    def driver_version(self) -> str:
        return postroom.__version__

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        uri = uri if "://" in (uri or "") else options.url_of(self.client)
        shown = uri if include_password else str(without_secrets(uri)).replace("***", mask)
        return shown if shown.startswith("postroom+") else f"postroom+{shown}"

    # --- connections ------------------------------------------------------------------------

    def establish_connection(self) -> Transport:
        self.office = office_of(options.url_of(self.client), options.read(self.client.transport_options))
        self.office.ping()
        self.intake = Intake(self)
        super().establish_connection()
        return self

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        self.intake.close()

    def _collect(self, connection: Any) -> None:
        """The connection is lost (or inherited by a fork): forget it, without handing anything back."""
        if connection is None:
            return
        for channel in [*self._avail_channels, *self.channels]:
            if not channel.closed:
                channel.abandon()
        self._avail_channels.clear()
        self.channels.clear()
        self.intake.close()
        if worker_state() is None:
            self.office.release_orphans()

    # --- consuming --------------------------------------------------------------------------

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        note_worker()
        self._loop = loop
        self.intake.join(loop)
        if not hasattr(loop, "_create_waker"):
            _wake_when_called(loop, self.intake)
        self._join_in()

    def on_consume(self, *, no_ack: bool) -> None:
        """A consumer began; that of a worker without an event loop brings the keeper, too."""
        if not no_ack and worker_state() is not None:
            self._join_in()

    def _join_in(self) -> None:
        """What the worker of this process does beside its tasks."""
        self.office.keep()
        show_ourselves()

    def drain_events(self, connection: Any, timeout: float | None = None, **kwargs: Any) -> None:
        if timeout and self._loop is None and self.office.held and worker_state() is not None:
            # Acks that Celery before 5.7 left to this loop wait until it comes round.
            timeout = min(timeout, _ROUND)
        if not self.intake.drain(timeout):
            raise socket.timeout()  # noqa: UP041  (what kombu's callers catch, under its name)

    def finish_acks(self) -> None:
        """Acks that Celery left to its event loop come before whatever is handed back."""
        loop = self._loop
        if loop is None:
            return
        ready, loop._ready = loop._ready, set()
        for callback in ready:
            try:
                callback()
            except Exception:
                log.exception(
                    "a callback of the event loop failed", extra={"event": "celery.callback_failed"}
                )


def _wake_when_called(loop: Any, intake: Intake) -> None:
    """Kombu before 5.7 lets the acks of the threads pool wait until its hub wakes by itself.

    A hub outlives connections: the next one takes the place of this, and is not put around it.
    """
    plain = getattr(loop.call_soon, "plain", loop.call_soon)

    def called(callback: Any, *args: Any) -> Any:
        made = plain(callback, *args)
        intake.wake()
        return made

    called.plain = plain  # type: ignore[attr-defined]  # how the next one finds it
    loop.call_soon = called


def _stay_on_postroom(client: Any) -> None:
    """Kombu takes the transport of the next broker from its URL, which may say just redis://."""
    if "switch" in vars(client):
        return

    def switch(url: str) -> None:
        client.close()
        client.declared_entities.clear()
        client._closed = False
        client._init_params(**{**client._initial_params, "hostname": url, "transport": Transport})

    client.switch = switch
