"""Telemetry: what a room measures of itself, wrapped around its engine from outside.

Off, it is not there. On (`telemetry = true`), `observed` stands around the engine and measures how long
messages wait and how long work takes; `samples` keeps that in the store, so that every process sees the
whole room and no process is asked; `sla` reads it against what the queues promise; `exporter` tells it, and
what the engine counts itself, to Prometheus; `tracing` links the span of a put to that of its work.

    with telemetry.timer("webhook.latency"):     in a handler: measured like everything else
        send(delivery.body)
"""

from __future__ import annotations

from postroom.telemetry.observed import Observed
from postroom.telemetry.sla import Sla, Wait, read_sla, read_waits
from postroom.telemetry.timers import timer

__all__ = ["Observed", "Sla", "Wait", "read_sla", "read_waits", "timer"]
