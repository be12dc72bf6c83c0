"""How a service stands: what waits for its handlers, for its time, and in the archive."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from amqp.exceptions import NotFound as NoSuchQueue
from amqp.exceptions import ResourceLocked

from postroom.celery.events.holding import as_unavailable, connected
from postroom.celery.events.letters import letter_of
from postroom.celery.working import office_for
from postroom.model import State
from postroom.services import Count, Standing

if TYPE_CHECKING:
    from postroom.celery.events.app import EventsApp


def look(app: EventsApp) -> Standing:
    """Ask the broker. Raises EngineUnavailable.

    What a reader of an archive on RabbitMQ holds is not counted meanwhile.
    """
    return _on_rabbitmq(app) if app.on_rabbitmq else _on_engine(app)


def _on_engine(app: EventsApp) -> Standing:
    engine = office_for(app).room.engine
    names = list(app.handlers.queues)
    now, stats = engine.now(), {queue: engine.stats(queue) for queue in names}
    filled, oldest = 0.0, 0
    for info in engine.queues(names):
        first = engine.find(info.name, State.DEAD, limit=1).entries
        age = now - (first[0].failed_at or now) if first else 0
        bounds = stats[info.name].dead, info.policy.dead_limit, age, info.policy.dead_retention
        filled, oldest = max(filled, _filled(*bounds)), max(oldest, age)
    return Standing(
        app.service,
        {queue: each.ready for queue, each in stats.items()},
        {queue: each.scheduled for queue, each in stats.items()},
        sum(each.dead for each in stats.values()),
        filled,
        oldest,
    )


def _filled(count: int, most: int | None, age: int, retention: int | None) -> float:
    return max(count / most if most else 0.0, age / retention if retention else 0.0)


def _on_rabbitmq(app: EventsApp) -> Standing:
    given, names = app.given, app.names
    with as_unavailable(), connected(app) as connection:
        ready = {queue: _count(connection, queue) for queue in app.handlers.queues}
        rungs = {names.rung(ttl): _count(connection, names.rung(ttl)) for ttl in given.ladder.rungs}
        if given.archive is None:
            return Standing(app.service, ready, rungs)
        archived = _count(connection, names.archive)
        # Also when it tells 0: so does a queue without a leader, and does not answer this.
        oldest = 0 if archived is None else _oldest(connection, app)
        filled = _filled(archived or 0, given.archive.most, oldest, given.archive.retention)
        return Standing(app.service, ready, rungs, archived, filled, oldest)


def _count(connection: Any, queue: str) -> Count:
    try:
        with connection.channel() as channel:  # a missing queue closes the channel
            return int(channel.queue_declare(queue, passive=True).message_count)
    except NoSuchQueue:
        return None


def _oldest(connection: Any, app: EventsApp) -> int:
    """The age of the first letter, which goes back to its place with the channel; 0 beside a reader.

    No reader comes before it is back: the connection, which ends later, keeps others out till then.
    """
    try:
        with connection.channel() as channel:
            channel.queue_declare(app.names.reader, exclusive=True, durable=False, auto_delete=True)
            message = channel.basic_get(app.names.archive)
            died = letter_of(app.names.archive, message).failed_at if message else None
    except ResourceLocked:
        return 0
    return max(0, int(time.time() * 1_000) - died) if died else 0
