"""Celery on Postroom: a kombu transport over every engine.

    import postroom.celery
    app = Celery("shop", broker="postroom+redis://localhost/0")

`transport`, `channel` and `qos` are what kombu sees; `intake` claims and hands on, woken by `bells`; `office`
is what the whole process holds, with its thread in `upkeep` (under gevent with a `pulse`); `presence` is what
Celery's worker is doing, `attendance` tells the room of it, `allowance` says how much of a queue it may have,
`promises` says again what a store has lost, and `early` sends acks before tasks.
`wrapping` translates messages; `exchanges`, `fanout` and `transient` keep what AMQP has and a queue has not;
`batch` publishes many at once; `options` reads `broker_transport_options`; `migrate` brings over what waits
in the lists of kombu's own Redis transport, which `stock` knows.
`matrix` applies the queue matrix to an app, and `staffing` to its worker: `retrying` and `request` say how a
task is tried again and given up, `working` what the domain's guards know of it; `control` adds commands.
`beat` runs the entries of Celery's beat as schedules of the room.
"""

from __future__ import annotations

from kombu.transport import TRANSPORT_ALIASES

from postroom.celery.batch import publish_group
from postroom.celery.matrix import setup
from postroom.celery.offices import close_offices
from postroom.celery.transport import Transport

_SCHEMES = ("redis", "rediss", "valkey", "valkeys")
#: Kombu cuts a URL at its first plus, except when it turns to another broker.
TRANSPORT_ALIASES |= dict.fromkeys(
    [
        "postroom",
        "postroom+sqlite",
        "postroom+memory",
        *(f"postroom+{scheme}" for scheme in _SCHEMES),
        *(f"postroom+{scheme}+{way}" for scheme in _SCHEMES for way in ("sentinel", "cluster", "socket")),
    ],
    "postroom.celery.transport:Transport",
)

__all__ = ["Transport", "close_offices", "publish_group", "setup"]
