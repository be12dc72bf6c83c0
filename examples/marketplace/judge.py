"""The verdict: what has to become of every message, held against the store and against the notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from examples.marketplace.cases import AT_ONCE, CLASSES, FAILURES, Case, Put
from postroom.deadletters import DeadLetters
from postroom.model import Entry
from postroom.room import Room


def verdict(room: Room, put: Put, notes: list[dict[str, Any]], killed: int) -> list[str]:
    """Everything that is not as it has to be; nothing: all is well."""
    dead = {(info.name, entry.id): entry for info in room.queues() for entry in _dead(room, info.name)}
    return [*_healthy(put, dead, notes), *_poison(room, put, dead), *_killer(room, put, killed), *_rest(room)]


def dead_letters(room: Room) -> Counter[str]:
    """How many dead letters there are under each dead-letter name."""
    counts: Counter[str] = Counter()
    for info in room.queues():
        counts[info.policy.dead_letter] += room.engine.stats(info.name).dead
    return +counts


def misplaced(room: Room, poison: Mapping[str, Case]) -> Iterator[str]:
    """Poison, by task id, that is not under its dead-letter name, not of its class, or in no group of it."""
    names = {id: room.queue(case.queue).policy.dead_letter for id, case in poison.items()}
    for name in sorted(set(names.values())):
        view = DeadLetters(room, name)
        letters = {letter.call.task_id: letter for letter in view.find(limit=1_000).letters}
        groups = {group.group: (group.count, group.classification) for group in view.groups().groups}
        sizes = Counter(letter.group for letter in letters.values())
        for id in (id for id in poison if names[id] == name):
            case, letter = poison[id], letters.get(id)
            if letter is None:
                yield f"{_name((case.queue, id), case)} is not in {name}"
            elif letter.classification != CLASSES[case.fate]:
                yield f"{_name((case.queue, id), case)} is of class {letter.classification}"
            elif groups.get(letter.group) != (sizes[letter.group], letter.classification):
                yield f"{_name((case.queue, id), case)} is in no group of {name} that counts it"


def _dead(room: Room, queue: str) -> Iterator[Entry]:
    return room.queue(queue).find_all("dead")


def _healthy(put: Put, dead: dict[tuple[str, str], Entry], notes: list[dict[str, Any]]) -> Iterator[str]:
    done = {(line["queue"], line["id"]) for line in notes if line["what"] == "done"}
    for key, case in put.items():
        if not case.is_poison and key not in done:
            yield f"{_name(key, case)} was never done"
    for key, entry in dead.items():
        if key not in put or not put[key].is_poison:
            yield f"{key} is healthy, but dead: {entry.last_error}"
    # A tick puts under its own id.
    for (queue, id), case in put.items():
        for target, _ in case.body["puts"] if queue == "beat" else ():
            if (target, id) not in done:
                yield f"what tick {id} put into {target} was never done"


def _poison(room: Room, put: Put, dead: dict[tuple[str, str], Entry]) -> Iterator[str]:
    for key, case in put.items():
        if not case.is_poison:
            continue
        if key not in dead:
            yield f"{_name(key, case)} is not dead"
            continue
        entry, failure = dead[key], FAILURES[case.fate]
        attempts = AT_ONCE.get(case.fate, room.queue(case.queue).policy.max_attempts)
        if entry.failure is None or entry.failure.type != failure:
            yield f"{_name(key, case)} should be dead of {failure}, not of {entry.last_error}"
        if entry.attempt != attempts:
            yield f"{_name(key, case)} had {entry.attempt} attempts, not {attempts}"


def _killer(room: Room, put: Put, killed: int) -> Iterator[str]:
    """A message that kills is tried as often as any other, and costs no other more than that."""
    queues = [case.queue for case in put.values() if case.fate == "killer"]
    expected = sum(room.queue(queue).policy.max_attempts for queue in queues)
    if killed != expected:
        yield f"{killed} workers were killed, not {expected}"


def _rest(room: Room) -> Iterator[str]:
    for info in room.queues():
        stats = room.engine.stats(info.name)
        if stats.depth or stats.processing:
            yield f"{info.name} still holds {stats.depth + stats.processing} messages"


def _name(key: tuple[str, str], case: Case) -> str:
    return f"{case.fate} message {key[1]} of {key[0]}"
