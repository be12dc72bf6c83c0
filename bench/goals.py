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
        "HTTP: put, 16 connections": _at_least(1_200),
        "HTTP: put 500 a call, 4 connections": _at_least(15_000),
        "HTTP: a waiting claim is answered p99": Target(20),
        "HTTP: 1,000 listeners: events missed": Target(0),
        "HTTP: 1,000 listeners: stats beside them p99": Target(50),
        "HTTP: 1,000 listeners: memory of the server": Target(150),
        "HTTP: stats with 1 M waiting p99": Target(10),
        "telemetry on ÷ off, drain": _at_least(0.95),
        "telemetry on ÷ off, processor time": Target(1.05),
        "enqueue: Postroom ÷ huey": _EVEN,
        "enqueue: Postroom ÷ litequeue": _EVEN,
        "enqueue: Postroom ÷ huey's task()": _EVEN,
        "dequeue+ack: turn ÷ huey": _EVEN,
        "dequeue+ack: turn ÷ litequeue": _EVEN,
        "dequeue+ack: two calls ÷ litequeue": _EVEN,
    },
    "redis": {
        "put_many": _at_least(40_000),
        "telemetry on ÷ off, drain": _at_least(0.95),
        "telemetry on ÷ off, processor time": Target(1.05),
        "put, one by one: Postroom ÷ the fastest of the others": _EVEN,
        "drain of no-ops: Postroom ÷ the fastest of the others": _at_least(6),
        "Celery drain, solo: Postroom ÷ stock": _at_least(2),
        "Celery drain, solo: Postroom ÷ null transport": _at_least(0.75),
        "Celery drain, threads: Postroom ÷ stock": _at_least(2),
        "Celery drain, threads: Postroom ÷ null transport": _at_least(0.75),
        "Celery drain, prefork: Postroom ÷ stock": _at_least(1.6),
        "Celery drain, prefork: Postroom ÷ null transport": _at_least(0.75),
        "Celery round trips a task, prefetch 4: Postroom": Target(0.6),
        "Celery round trips a task, prefetch 64: Postroom": Target(0.15),
        "Celery apply_async, one by one: Postroom ÷ stock": _at_least(1.3),
        "Celery: Redis memory for a waiting task: Postroom ÷ stock": Target(0.8),
        "Celery countdown lateness p99: Postroom": Target(10),
        "Celery worker: growth by 100,000 pending countdowns": Target(5),
        "Celery: first task after the worker is ready: Postroom": Target(2_000),
        "Celery: first task after Redis is back: Postroom": Target(2_000),
        "Events on RabbitMQ: publish, window ÷ kombu": _at_least(3),
        "Events on RabbitMQ: handled, service ÷ plain Celery": _EVEN,
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
