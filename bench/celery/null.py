"""A transport without a broker: messages come ready-made from memory, and acks go nowhere.

What a worker reaches with it is what Celery itself leaves of a machine; no transport can be faster.
"""

from __future__ import annotations

import itertools
import os
import select
import socket
from collections import deque
from typing import Any, ClassVar
from uuid import uuid4

from kombu.transport import virtual

Payload = dict[str, Any]

#: What is handed out, filled before the worker starts.
waiting: deque[Payload] = deque()
_tags = itertools.count()


def fill(task: str, args: str, count: int) -> None:
    """So many messages as Celery makes them for this task, whose arguments are given as JSON."""
    waiting.extend(message(task, args) for _ in range(count))


def message(task: str, args: str) -> Payload:
    """One of them."""
    id = str(uuid4())
    headers: Payload = {
        "lang": "py", "task": task, "id": id, "shadow": None, "eta": None, "expires": None, "group": None,
        "group_index": None, "retries": 0, "timelimit": [None, None], "root_id": id, "parent_id": None,
        "argsrepr": args, "kwargsrepr": "{}", "origin": "bench", "ignore_result": True,
        "replaced_task_nesting": 0, "stamped_headers": None, "stamps": {},
    }  # fmt: skip
    properties: Payload = {
        "correlation_id": id, "reply_to": id, "delivery_mode": 2, "priority": 0, "body_encoding": None,
        "delivery_info": {"exchange": "", "routing_key": "celery"}, "delivery_tag": str(next(_tags)),
    }  # fmt: skip
    embed = '{"callbacks": null, "errbacks": null, "chain": null, "chord": null}'
    return {
        "body": f"[{args}, {{}}, {embed}]",
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": headers,
        "properties": properties,
    }


class Channel(virtual.Channel):
    """Takes everything and keeps nothing."""

    do_restore = False

    def _put(self, queue: str, message: Payload, **kwargs: Any) -> None:
        pass

    def _get(self, queue: str, timeout: float | None = None) -> Payload:
        raise virtual.base.Empty

    def _size(self, queue: str) -> int:
        return 0

    def _purge(self, queue: str) -> int:
        return 0


class Transport(virtual.Transport):
    """Hands on whenever there is room, in the tick of Celery's event loop.

    With a port in its URL it waits for a PONG from there first: the least that a broker can cost.
    """

    Channel = Channel
    #: As both others say: Celery asks for it before it lets workers talk to each other.
    driver_type = "redis"
    driver_name = "null"
    implements = virtual.Transport.implements.extend(asynchronous=True)
    #: A hub knows of one; the others are for publishing.
    state: ClassVar[Any] = virtual.base.BrokerState()

    def driver_version(self) -> str:
        return "0"

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        self._loop = loop
        port = self.client.port
        self._line = socket.create_connection(("127.0.0.1", port)) if port else None
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)
        loop.add_reader(self._bell, os.eventfd_read, self._bell)
        loop.on_tick.add(self._tick)

    def _tick(self) -> None:
        did = False
        if self._line and waiting:
            self._line.sendall(b"PING\r\n")
            self._line.recv(16)
        for channel in self.channels:
            while waiting and "celery" in channel._active_queues and channel.qos.can_consume():
                self._deliver(waiting.popleft(), "celery")
                did = True
        # What a task left for the hub, its ack above all, must not wait for the end of its poll.
        if did or self._loop._ready:
            os.eventfd_write(self._bell, 1)

    def drain_events(self, connection: Any, timeout: float | None = None, **kwargs: Any) -> None:
        select.select([], [], [], timeout or 0.1)
        raise socket.timeout()  # noqa: UP041  (what kombu's callers catch, under its name)
