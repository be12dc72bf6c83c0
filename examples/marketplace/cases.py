"""The messages of the scenario: what is put where, and what has to become of each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from postroom.config import Config
from postroom.room import Room

#: The failure with which each kind of poison has to end up dead.
FAILURES = {
    "poison": "ValueError",
    "rejected": "Bury",
    "garbled": "Undecodable",
    "stranger": "NoHandler",
    "late": "Expired",
    "killer": "LeaseExpired",
}
#: And of which class its dead letter is then.
CLASSES = {
    "poison": "exception",
    "rejected": "rejected",
    "garbled": "undecodable",
    "stranger": "undecodable",
    "late": "expired",
    "killer": "crash-loop",
}
#: What no attempt is made on twice, or at all.
AT_ONCE = {"rejected": 1, "garbled": 1, "stranger": 1, "late": 0}
KINDS = {"fast_default": ("update_metrics", "send_webhook")}
#: Every queue but the one of the clock, which gets ticks.
WORK = (
    "fast_default", "notifications_email", "chat_events",
    "heavy_settlements", "heavy_payouts", "media_processing",
)  # fmt: skip

#: Of a day, beside those of the schedule.
TICKS = 3


@dataclass(frozen=True, slots=True)
class Case:
    """A message to put: its fate, and so what has to become of it."""

    queue: str
    fate: str
    body: Any = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_poison(self) -> bool:
        return self.fate in FAILURES


Put = dict[tuple[str, str], Case]


def everyday(config: Config, each: int) -> list[Case]:
    """A day's work: so many healthy messages for every queue, some of them flaky, and its share of poison."""
    cases = [case for queue in WORK for case in _for_queue(queue, config.policy(queue).max_attempts, each)]
    cases += [_case("fast_default", "stranger", order=1, kind="no_such_task")]
    cases += [Case("notifications_email", "rejected", {"fate": "well", "order": 2})]
    cases += [Case("beat", "well", {"fate": "well", "puts": [["fast_default", "update_metrics"]]})] * TICKS
    random.Random(1).shuffle(cases)
    return cases


def _for_queue(queue: str, attempts: int, each: int) -> Iterator[Case]:
    for order in range(each):
        # One retry is left over: a process that is killed beside it may cost a flaky message one more.
        times = 1 + order // 3 % (attempts - 2) if order % 3 == 0 else 0
        yield _case(queue, "flaky" if times else "well", order=order, times=times)
    yield _case(queue, "poison", order=each)
    yield Case(queue, "garbled", b'{"fate": ', {"content_type": "application/json", **_kind(queue, 0)})


def _case(queue: str, fate: str, *, order: int, times: int = 0, **options: Any) -> Case:
    body: dict[str, Any] = {"fate": fate, "order": order, "template": "plain"}
    if fate == "flaky":
        body["times"] = times
    return Case(queue, fate, body, {**_kind(queue, order), **options})


def _kind(queue: str, order: int) -> dict[str, str]:
    kinds = KINDS.get(queue)
    return {"kind": kinds[order % len(kinds)]} if kinds else {}


def late() -> list[Case]:
    """What was worthless before anybody came to work."""
    return [_case("chat_events", "late", order=3, expires="20ms")]


def killing(bystanders: int) -> list[Case]:
    """The message that kills its workers, in the middle of a crowd that must survive it."""
    crowd = [_case("chat_events", "well", order=order) for order in range(bystanders)]
    crowd.insert(bystanders // 2, _case("chat_events", "killer", order=4))
    return crowd


def put_all(room: Room, cases: list[Case]) -> Put:
    """Put them, and remember each by its queue and id."""
    return {(case.queue, room.queue(case.queue).put(case.body, **case.options).id): case for case in cases}
