"""Declares a topology on RabbitMQ: again and again without effect, and with words when it cannot be."""

from __future__ import annotations

import re
from typing import Any

from amqp.exceptions import PreconditionFailed

from postroom.celery.events.topology import EXCHANGE, Exchange, Queue, Topology
from postroom.errors import Conflict

_INEQUIVALENT = re.compile(
    r"inequivalent arg '(?P<argument>[^']+)' for (?P<kind>\w+) '(?P<name>[^']+)' .*?"
    r"received (?P<wanted>.+?) but current is (?P<present>.+?)$"
)


def declare(connection: Any, topology: Topology) -> None:
    """Declare all of it; what is there already stays. Raises Conflict when something differs."""
    with connection.channel() as channel:
        try:
            for exchange in topology.exchanges:
                _exchange(channel, exchange)
            for queue in topology.queues:
                _queue(channel, queue)
        except PreconditionFailed as error:
            raise Conflict(explain(str(error.reply_text))) from error
        for binding in topology.bindings:
            bind = channel.exchange_bind if binding.to_exchange else channel.queue_bind
            bind(binding.target, binding.source, binding.key, arguments=dict(binding.arguments))


def _exchange(channel: Any, exchange: Exchange) -> None:
    arguments = dict(exchange.arguments)
    channel.exchange_declare(
        exchange.name, exchange.type, durable=True, auto_delete=False, arguments=arguments
    )


def _queue(channel: Any, queue: Queue) -> None:
    channel.queue_declare(queue.name, durable=True, auto_delete=False, arguments=dict(queue.arguments))


def explain(reply: str) -> str:
    """What RabbitMQ's refusal means, and the two ways out."""
    found = _INEQUIVALENT.search(reply)
    if found is None:
        return f"RabbitMQ has another topology than this service wants: {reply}"
    if found["name"] == EXCHANGE:
        ways = "Every service shares it: delete what is not ours, or use a virtual host of your own"
    else:
        ways = (
            "Take back the setting, or give the app topology_version= with the next number, and delete what "
            "is left of the old version"
        )
    return (
        f"{found['kind']} {found['name']!r} exists with another {found['argument']}: there "
        f"{found['present']}, here {found['wanted']}; RabbitMQ cannot change it. {ways}"
    )
