"""A room with a life: queues, work, failures and promises, for tests that look and for pictures."""

from __future__ import annotations

from typing import Any

from postroom import Policy
from postroom.room import Room

MESSAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "emails": ("send_welcome", {"to": "ada@example.org", "template": "welcome", "user_id": 42}),
    "payouts": ("pay_out", {"account": 9007199254740993, "cents": 125_00, "currency": "EUR"}),
    "thumbnails": ("resize", {"image": "img/2026/11/cat.jpg", "sizes": [64, 256, 1024]}),
    "webhooks": ("deliver", {"url": "/hooks/orders", "event": "order.paid", "order": {"id": 7, "lines": 3}}),
    "reports": ("build_report", {"month": "2026-10", "format": "pdf"}),
}
POLICIES = {
    "emails": Policy(sla_p95="30s", max_attempts=5),
    "payouts": Policy(max_attempts=6, backoff="2^n * 90s", ack_timeout="15m", sla_p95="2m", max_in_flight=8),
    "thumbnails": Policy(capacity=5_000, lease="2m"),
    "webhooks": Policy(max_attempts=2, backoff="1s", jitter=False),
    "reports": Policy(),
}


class Declined(Exception):
    """A payment that the bank does not want."""


def furnish(room: Room, *, ready: int = 40) -> None:
    """Something in every state, a queue that is paused, and two groups of dead letters."""
    for name, policy in POLICIES.items():
        kind, body = MESSAGES[name]
        queue = room.queue(name, policy)
        queue.put_many([queue.message({**body, "n": n}, kind=kind) for n in range(ready)])
    room.queue("emails").put(MESSAGES["emails"][1], kind="send_welcome", priority="high")
    for minutes in (1, 5, 30, 90):
        room.queue("reports").put({"month": "2026-11"}, kind="build_report", delay=minutes * 60)
    # The more urgent comes first again when it is tried again: so one letter has two attempts.
    room.queue("webhooks").put(MESSAGES["webhooks"][1], kind=MESSAGES["webhooks"][0], priority="high")
    for n in range(6):
        fail(
            room,
            "webhooks",
            TimeoutError("the partner did not answer within 10 s"),
            attempts=2 if n == 0 else 1,
        )
    for _ in range(2):
        fail(room, "payouts", Declined("account 4711 is closed"))
    for _ in range(3):
        held = room.queue("thumbnails").claim()
        assert held is not None
        held.extend("1h")  # for as long as somebody looks, also on a busy machine
    room.queue("reports").pause("the warehouse is being moved")


def fail(room: Room, name: str, error: Exception, *, attempts: int = 1) -> None:
    """Let the next message of a queue die of it, after so many attempts."""
    for attempt in range(attempts):
        delivery = room.queue(name).claim()
        assert delivery is not None
        if attempt + 1 < attempts:
            delivery.extend()  # it hoped for an answer
            delivery.fail(error, after=0)
        else:
            delivery.bury(error)


PHONE = {"width": 390, "height": 844}
#: Every page: the name of its picture, its place ({dead} and {letter}: a dead letter as message and as
#: itself), and what it shows once loaded.
PAGES = {
    "overview": ("/", "What fails"),
    "queues": ("/queues", "p95 wait"),
    "queue": ("/queues/emails", "send_welcome"),
    "policy": ("/queues/payouts?show=policy", "So it is tried again after"),
    "message": ("{dead}", "Became a dead letter"),
    "stored": ("{dead}?tab=stored", "What the store itself holds"),
    "charts": ("/queues/emails?show=charts", "Draw over a chart"),
    "processing": ("/processing", "Time left"),
    "lanes": ("/processing?view=lanes", "Last five minutes"),
    "scheduled": ("/scheduled", "Why it waits"),
    "dead": ("/dead", "the partner did not answer"),
    "letter": ("{letter}", "Payload hash"),
    "workers": ("/workers", "Nobody works here"),
    "breakers": ("/breakers", "No shared breaker yet"),
    "events": ("/events", "Nothing has happened yet"),
    "topics": ("/events?tab=topics", "No topic yet"),
    "archives": ("/events?tab=archives", "No service is shown here"),
    "settings": ("/settings", "How it stands"),
    "health": ("/settings?tab=health", "What to do"),
    "config": ("/settings?tab=config", "What each role may do"),
    "find": ("/find?kind=send", "all there are"),
    "kind": ("{dead}?tab=kind", "In every queue"),
    "tokens": ("/settings?tab=tokens", "Nobody has a token yet"),
    "audit": ("/settings?tab=audit", "the warehouse is being moved"),
}


def places(room: Room) -> dict[str, tuple[str, str]]:
    """The pages as they are in a furnished room."""
    dead = max(room.queue("webhooks").find("dead").entries, key=lambda entry: len(entry.attempts))
    id = dead.message.id
    where = {"dead": f"/queues/webhooks/messages/{id}", "letter": f"/dead/webhooks/{id}"}
    return {name: (path.format_map(where), text) for name, (path, text) in PAGES.items()}
