"""What a service has on RabbitMQ: exchanges, queues and bindings, as plain values.

    events (topic) ── queues of the service ──rejected──▶ S.retry (fanout) ─▶ rung 1 s ─▶ S.recover
                                                          S.retry.N (fanout) ─▶ rung N ─▶ S.step.M
    S.step.M (headers): rung M, if the message asks for it, else the next step; the last one is S.recover
    S.recover (topic) ── the same queues; S.archive (fanout) ── the archive ──dropped──▶ S.lost (fanout)

Everything but `events` belongs to one service and carries the version of its topology, so one failing service
never multiplies events for another. No exchange on the way changes a routing key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom.celery.events.ladder import Ladder
from postroom.celery.events.names import overlap
from postroom.errors import InvalidInput

#: Where every service publishes.
EXCHANGE = "events"
#: How often a message is given to the next worker because one died of it, before that counts as an attempt.
CRASH_BUDGET = 5
#: RabbitMQ 3 knows no word for "without limit", and 4 has one of 20 unless told otherwise. At a limit it
#: would send the message to the ladder and drop it there: a way back without a reject is a loop for it.
_UNLIMITED = 1_000_000_000
#: Letters that wait to be told of as lost, while no worker runs that could.
_MOST_LOST = 10_000


@dataclass(frozen=True, slots=True)
class Exchange:
    name: str
    type: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Queue:
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Binding:
    """What an exchange passes on, to a queue or to another exchange."""

    source: str
    target: str
    key: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    to_exchange: bool = False


@dataclass(frozen=True, slots=True)
class Names:
    """What the parts of a service's topology are called."""

    service: str
    version: int = 1

    def _of(self, *parts: object) -> str:
        return ".".join(map(str, (self.service, f"v{self.version}", *parts)))

    def queue(self, pattern: str, group: str | None, *, one: bool) -> str:
        """The queue of a handler: its group's, that of everything, or that of its event."""
        if group is not None:
            return self._of("group", group)
        return self._of("all") if one else self._of("event", pattern)

    @property
    def retry(self) -> str:
        return self._of("retry")

    def rung(self, ttl: int) -> str:
        return self._of("retry", f"{ttl // 1_000}s" if ttl % 1_000 == 0 else f"{ttl}ms")

    def step(self, ttl: int) -> str:
        return self._of("step", f"{ttl // 1_000}s" if ttl % 1_000 == 0 else f"{ttl}ms")

    @property
    def recover(self) -> str:
        return self._of("recover")

    @property
    def archive(self) -> str:
        return self._of("archive")

    @property
    def lost(self) -> str:
        """Where what the archive drops waits to be told of."""
        return self._of("lost")

    @property
    def reader(self) -> str:
        """What a reader of the archive has for itself while it reads."""
        return self._of("archive", "reader")


@dataclass(frozen=True, slots=True)
class Archive:
    """How long and how many: what exceeds it goes, the oldest first (ms, events)."""

    retention: int = 7 * 24 * 3_600_000
    most: int = 10_000


@dataclass(frozen=True, slots=True)
class Topology:
    exchanges: tuple[Exchange, ...]
    queues: tuple[Queue, ...]
    bindings: tuple[Binding, ...]


def wants(rung: int) -> str:
    """The header by which a message asks for a rung, once it is on the ladder.

    Not x-…: a headers exchange passes over those, and would send every message to every rung.
    """
    return f"postroom-rung-{rung}"


def check_queues(queues: Mapping[str, Iterable[str]]) -> None:
    """No event may reach two queues of one service: each retry would reach both. Raises InvalidInput."""
    known: list[tuple[str, str]] = []
    for queue, patterns in queues.items():
        for pattern in patterns:
            for other, earlier in known:
                if other != queue and overlap(pattern, earlier):
                    raise InvalidInput(
                        f"handlers of {earlier!r} and of {pattern!r} can mean the same event, and would have "
                        f"two queues; give both the same group=, or queues='one' to the app"
                    )
            known.append((queue, pattern))


def build(
    names: Names,
    queues: Mapping[str, Iterable[str]],
    ladder: Ladder,
    archive: Archive | None,
    queue_type: str = "quorum",
) -> Topology:
    """All of it, in an order in which it can be declared."""
    parts = [_ladder(names, ladder, queue_type), _events(names, queues, queue_type)]
    if archive is not None:
        parts.append(_archive(names, archive, queue_type))
    return Topology(
        exchanges=(
            Exchange(EXCHANGE, "topic"),
            Exchange(names.recover, "topic"),
            *(exchange for part in parts for exchange in part.exchanges),
        ),
        queues=tuple(queue for part in parts for queue in part.queues),
        bindings=tuple(binding for part in parts for binding in part.bindings),
    )


def _events(names: Names, queues: Mapping[str, Iterable[str]], queue_type: str) -> Topology:
    """The queues that workers consume. What they reject waits a second on the ladder."""
    arguments: dict[str, Any] = {"x-queue-type": queue_type, "x-dead-letter-exchange": names.retry}
    if queue_type == "quorum":
        arguments |= _SAFE | {"x-delivery-limit": _UNLIMITED}  # workers count: see `intake`
    return Topology(
        (),
        tuple(Queue(name, arguments) for name in queues),
        tuple(
            Binding(source, queue, pattern)
            for queue, patterns in queues.items()
            for pattern in patterns
            for source in (EXCHANGE, names.recover)
        ),
    )


#: A message leaves a queue only when the next one has it. This asks for queues that refuse rather than drop.
_SAFE = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}


def _ladder(names: Names, ladder: Ladder, queue_type: str) -> Topology:
    exchanges = [Exchange(names.retry, "fanout")]
    bindings = [Binding(names.retry, names.rung(ladder.first))]
    queues: list[Queue] = []
    onward = names.recover
    for ttl in ladder.rungs:
        rung = names.rung(ttl)
        arguments = {"x-queue-type": queue_type, "x-message-ttl": ttl, "x-dead-letter-exchange": onward}
        queues.append(Queue(rung, arguments | (_SAFE if queue_type == "quorum" else {})))
        step = names.step(ttl)
        exchanges += [Exchange(rung, "fanout"), Exchange(step, "headers", {"alternate-exchange": onward})]
        asks = {"x-match": "all", wants(ttl): True}
        bindings += [Binding(rung, rung), Binding(step, rung, "", asks, to_exchange=True)]
        onward = step
    return Topology(tuple(exchanges), tuple(queues), tuple(bindings))


def _archive(names: Names, archive: Archive, queue_type: str) -> Topology:
    arguments: dict[str, Any] = {
        "x-queue-type": queue_type,
        "x-message-ttl": archive.retention,
        "x-max-length": archive.most,
        "x-overflow": "drop-head",
        "x-dead-letter-exchange": names.lost,
    }
    lost: dict[str, Any] = {
        "x-queue-type": queue_type, "x-max-length": _MOST_LOST, "x-overflow": "drop-head",
    }  # fmt: skip
    if queue_type == "quorum":
        # Every look at the archive is a delivery; from 4.0 on RabbitMQ would drop a letter after 20.
        arguments["x-delivery-limit"] = lost["x-delivery-limit"] = _UNLIMITED
    return Topology(
        (Exchange(names.archive, "fanout"), Exchange(names.lost, "fanout")),
        (Queue(names.archive, arguments), Queue(names.lost, lost)),
        (Binding(names.archive, names.archive), Binding(names.lost, names.lost)),
    )
