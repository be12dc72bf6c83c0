"""How dead letters, groups and incidents are shown to people."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from postroom.cli import output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroom.deadletters import DeadLetter, DeadLetters, GroupView, Incident

LETTERS = ("id", "died", "queue", "task", "class", "group", "replayed", "error")
GROUPS = ("group", "count", "first", "last", "queues", "task", "class", "incident", "error")
INCIDENTS = ("group", "status", "bucket", "cause", "fix", "link", "author", "at")
_WIDE = 80


def letter_row(letter: DeadLetter) -> tuple[str, ...]:
    return (
        letter.id, ago(letter.died_at), letter.queue, letter.call.task_name, letter.classification,
        letter.group[:8], str(len(letter.replayed_as) or ""), _cut(letter.failure.summary),
    )  # fmt: skip


def group_row(view: GroupView) -> tuple[str, ...]:
    queues = ", ".join(f"{queue} {count:,}" for queue, count in view.queues.items())
    incident = _standing(view.incident) if view.incident else ""
    return (
        view.group, f"{view.count:,}", ago(view.first), ago(view.last), queues, view.task_name,
        view.classification or "", incident, _cut(view.exception),
    )  # fmt: skip


def _standing(incident: Incident) -> str:
    status = _status(incident)
    return f"{status}, {incident.bucket}" if incident.bucket else status


def _status(incident: Incident) -> str:
    return f"{incident.status} again" if incident.reopened else str(incident.status)


def incident_row(incident: Incident) -> tuple[str, ...]:
    return (
        incident.group, _status(incident), incident.bucket or "", _cut(incident.cause), _cut(incident.fix),
        incident.link, incident.author, moment(incident.at),
    )  # fmt: skip


def incident_lines(incident: Incident) -> Iterator[str]:
    yield f"group     {incident.group}"
    yield f"status    {_standing(incident)}"
    for name in ("cause", "fix", "link"):
        if value := getattr(incident, name):
            yield f"{name:10}{value}"
    for change in incident.changes:
        what = ", ".join(
            value if name == "note" else f"{name} {value}" for name, value in change.what.items()
        )
        yield f"{moment(change.at)}  {change.author}: {what}"


def letter_lines(letter: DeadLetter, on_dead: str | None, incident: Incident | None) -> Iterator[str]:
    shown = letter.as_dict()
    for name in ("id", "queue", "task_id", "task_name", "args", "kwargs", "exception", "classification",
                 "group", "retries", "worker", "payload_hash", "correlation_id", "replayed_as"):  # fmt: skip
        value = shown[name]
        yield f"{name:16}{value if isinstance(value, str) else json.dumps(value)}"
    for name in ("put_at", "died_at"):
        yield f"{name:16}{moment(shown[name])}, {ago(shown[name])}"
    if on_dead:
        yield f"{'on_dead':16}{on_dead}"
    if incident:
        yield f"{'incident':16}{_standing(incident)}{incident.cause and f': {_cut(incident.cause)}'}"
    for number, attempt in enumerate(letter.attempts, 1):
        took = f"{attempt.ended_at - attempt.started_at:,} ms"
        yield f"attempt {number:<8}{moment(attempt.started_at)}, {took}, {attempt.consumer}: {attempt.error}"
    if letter.failure.traceback:
        yield ""
        yield letter.failure.traceback.rstrip()


def say_evicted(view: DeadLetters) -> None:
    """Retention is never silent."""
    if evicted := view.evicted():
        output.say(f"{evicted:,} dead letters were evicted by retention so far (dead_limit, dead_retention)")


def say_advice(on_dead: dict[str, str]) -> None:
    """What the queues of these letters ask of whoever looks."""
    for queue, words in on_dead.items():
        output.say(f"{queue}: {words}")


def ago(at: int) -> str:
    """About how long ago: "5s", "3h"; a moment ahead of this machine's clock is now."""
    seconds = max(0, int(time.time() - at / 1_000))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit} ago"
    return f"{seconds}s ago"


def moment(at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at / 1_000))


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDE else f"{line[: _WIDE - 1]}…"
