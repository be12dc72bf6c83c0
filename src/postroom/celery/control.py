"""Commands for workers: `celery inspect dead`, `celery control retry TASK_ID`.

They say what `postroom dead` says, by the same code. Every worker that is asked answers for the whole room; a
letter that one of them has replayed is left alone by the others.
"""

from __future__ import annotations

from typing import Any

from celery.worker.control import control_command, inspect_command

from postroom.deadletters import DeadLetters
from postroom.errors import NotFound, PostroomError
from postroom.room import Room

_MOST = 100


@inspect_command(args=[("name", str), ("limit", int)], signature="[queue or dead-letter name [limit=20]]")
def dead(state: Any, name: str | None = None, limit: int = 20, **_: Any) -> Any:
    """Dead letters, the groups that they form, how each is classified, and what to do about them."""
    try:
        letters = DeadLetters(_room(state), name or None)
        most = max(1, min(limit, _MOST))
        found = letters.find(limit=most).letters
        groups = letters.groups(most).groups
        advice = letters.on_dead(letter.queue for letter in found)
    except PostroomError as error:
        return {"error": str(error)}
    shown = [group.as_dict() for group in groups]
    return {"groups": shown, "letters": [letter.as_dict() for letter in found], "on_dead": advice}


@control_command(args=[("task_id", str), ("queue", str)], signature="<task_id> [queue]")
def retry(state: Any, task_id: str, queue: str | None = None, **_: Any) -> Any:
    """Replay the newest dead letter of this task, into its queue or another."""
    try:
        letters = DeadLetters(_room(state))
        letter = letters.get(task_id)
        result = letters.replay([letter.id], to=queue or None)
        if result.already:  # perhaps just now, by another worker that was asked
            return {"ok": f"{task_id} was replayed before, as {letters.get(letter.id).replayed_as[-1]}"}
    except PostroomError as error:
        return {"error": str(error)}
    if not result.done:
        return {"error": result.stopped or "; ".join(refusal.reason for refusal in result.refusals)}
    return {"ok": f"replayed {task_id} as {result.last} in {queue or letter.queue}"}


def _room(state: Any) -> Room:
    """The room of the worker's broker."""
    office = getattr(state.consumer.connection.transport, "office", None)
    if office is None:
        raise NotFound("the broker of this worker is no room of Postroom")
    room: Room = office.room
    return room
