"""After the day: the bug is fixed, and what died of it is replayed, one message first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from examples.marketplace import outside
from postroom.deadletters import DeadLetters, Filter, Result
from postroom.room import Room

#: What poison says of itself; rejected, late and garbled messages are none the better for the fix.
POISON = Filter(error="has no customer")
#: A canary waits in no line: whoever takes longer than this is stuck.
_PATIENCE = "60s"


def repair(
    room: Room,
    notes: Path,
    settle: Callable[[], None],
    meant: Callable[[Result], set[str]],
    say: Callable[[str], None],
) -> Iterator[str]:
    """A canary before the fix dies again and stops the others; after it, all poison is done.

    `settle` waits until nothing is left to do; `meant` tells which ids the notes then have to tell of.
    """
    letters = DeadLetters(room)
    early = letters.replay(POISON, canary=True, canary_timeout=_PATIENCE)
    if early.done != 1 or "died again" not in early.stopped:
        yield f"the canary before the fix: {early}"
    notes.with_name("fixed").touch()
    result = letters.replay(POISON, canary=True, canary_timeout=_PATIENCE)
    say(f"replayed {result.done} after the fix, one first")
    settle()
    missing = meant(result) - done(notes)
    if result.stopped or missing or not result.done:
        yield f"replayed {result}, not done: {missing}"


def done(notes: Path) -> set[str]:
    return {line["id"] for line in outside.read_notes(notes) if line["what"] == "done"}
