"""What the figures should reach, by engine: the report sets each beside what was measured.

A goal is information and fails nothing. It is found by the name of its figure.
"""

from __future__ import annotations

from bench.measure import Target


def _at_least(limit: float) -> Target:
    return Target(limit, at_least=True)


_EVEN = _at_least(1)

GOALS: dict[str, dict[str, Target]] = {
    "memory": {
        "put_many": _at_least(100_000),
        "claim+ack at batch 100, two calls": _at_least(100_000),
        "claim+ack at batch 100, turn": _at_least(100_000),
        "wake p99": Target(2),
        "delay lateness p99": Target(5),
        "delayed messages begun early": Target(0),
        "claim+ack of 100: 100 k ÷ 1 k": Target(1.5),
        "claim+ack of 100: 1 M ÷ 1 k": Target(1.5),
        "import postroom": Target(80),
        "telemetry on ÷ off, drain": _at_least(0.95),
        "a call through a closed breaker": Target(5),
        "telemetry on ÷ off, processor time": Target(1.05),
    },
    "sqlite": {
        "put, one by one": _at_least(1_500),
        "put, one by one: 8 threads ÷ 1": _at_least(4),
        "put_many, 100 a call": _at_least(40_000),
        "claim+ack at batch 1, two calls": _at_least(900),
        "claim+ack at batch 1, turn": _at_least(1_500),
        "claim+ack at batch 100, turn": _at_least(40_000),
        "other process: claimed p99": Target(5),
        "delay lateness p99": Target(10),
        "delayed messages begun early": Target(0),
        "claim of 1: 50 k ÷ 1 k": Target(1.5),
        "claim of 1: 1 M ÷ 1 k": Target(1.5),
        "claim of 100: 50 k ÷ 1 k": Target(1.5),
        "claim of 100: 1 M ÷ 1 k": Target(1.5),
        "disk for a waiting message": Target(700),
        "telemetry on ÷ off, drain": _at_least(0.95),
        "telemetry on ÷ off, processor time": Target(1.05),
        "enqueue: Postroom ÷ huey": _EVEN,
        "enqueue: Postroom ÷ litequeue": _EVEN,
        "dequeue+ack: turn ÷ huey": _EVEN,
        "dequeue+ack: turn ÷ litequeue": _EVEN,
        "dequeue+ack: two calls ÷ litequeue": _EVEN,
    },
    "redis": {
        "put_many": _at_least(40_000),
        "put, one by one: Postroom ÷ the fastest of the others": _EVEN,
        "drain of no-ops: Postroom ÷ the fastest of the others": _at_least(6),
        "Redis CPU a message: put, claim, ack at batch 10": Target(70),
        "Redis CPU a message: put, claim, ack at batch 100": Target(30),
        "Redis memory for a waiting message": Target(460),
        "wake p99": Target(5),
        "other process: claimed p99": Target(5),
        "delay lateness p99": Target(10),
        "delay lateness under full load p99": Target(25),
        "delayed messages begun early": Target(0),
        "claim of 1: 50 k ÷ 1 k": Target(1.3),
        "claim of 1: 1 M ÷ 1 k": Target(1.3),
        "claim of 100: 50 k ÷ 1 k": Target(1.3),
        "claim of 100: 1 M ÷ 1 k": Target(1.3),
        "overdue, idle: reclaimed after at most": Target(100),
        "overdue, busy: reclaimed after at most": Target(100),
        "purge of 50,000, nothing in flight: longest command": Target(20),
        "purge of 50,000, some in flight: longest command": Target(20),
        "purge of 1,000,000, nothing in flight: longest command": Target(20),
        "purge of 1,000,000, some in flight: longest command": Target(20),
    },
}
