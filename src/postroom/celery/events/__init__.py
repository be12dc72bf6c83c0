"""Events between services, over Celery: on RabbitMQ, and on every Postroom engine.

    from postroom.celery.events import events_app
    app = events_app("billing", imports=["billing.handlers"], broker_url="amqp://…")

`app` is what a service has; `declaration` what `@app.event` makes and `handling` what `@app.handler` makes;
`envelope` is the wire format. `intake` and `request` stand between Celery's worker and a handler, and
`starting` is how that worker begins. On RabbitMQ, `topology` says what there is, with the delays of `ladder`;
`declaring` declares it, `publisher` publishes, and `archiving` keeps what failed for good. `archive` opens
that as dead letters: `holding` takes them, `letters` reads them, and `shelf` is what is asked about them.
`leaderless` knows queues that are there and do not answer. `standing` says how many wait where, `watching`
warns of an archive that fills up, `metrics` tells both.
`outbox` publishes what a transaction of the caller's own has committed.
"""

from __future__ import annotations

import postroom.celery  # noqa: F401  (makes postroom+… known to kombu)
from postroom.celery.events.app import EventsApp, events_app
from postroom.celery.events.declaration import Event

__all__ = ["Event", "EventsApp", "events_app"]
