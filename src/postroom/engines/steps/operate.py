"""Looking and operating: pages of each state, and the moves of an operator."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from postroom.engines.steps.cursor import number
from postroom.engines.steps.put import admit
from postroom.engines.steps.slot import Slot
from postroom.engines.steps.state import QueueState
from postroom.errors import InvalidInput
from postroom.ids import replay_id
from postroom.limits import MAX_CLAIM_BYTES, when
from postroom.logs import Event
from postroom.model import EXPECTED, Action, Entry, Message, Move, Moved, Page, State

#: A replay's id is remembered for a day, like every put that somebody may repeat.
REPLAY_REMEMBER = 86_400_000


def find(
    state: QueueState,
    wanted: State,
    cursor: str | None,
    limit: int,
    group: str | None,
    correlation_id: str | None,
    now: int,
) -> Page:
    """One page by (key, id); the cursor is the last pair seen."""
    page = state.page(wanted, _parse_cursor(cursor), limit + 1, group, correlation_id, now)
    entries: list[Entry] = []
    size = 0
    for _, id in page[:limit]:
        slot = state.visible(id, now)
        assert slot is not None
        size += len(slot.message.body)
        if entries and size > MAX_CLAIM_BYTES:
            break
        entries.append(slot.entry())
    more = len(page) > len(entries)
    return Page(entries, "{}:{}".format(*page[len(entries) - 1]) if more else None)


def _parse_cursor(cursor: str | None) -> tuple[int, str] | None:
    if cursor is None:
        return None
    key, colon, id = cursor.partition(":")
    if not colon:
        raise InvalidInput(f"cursor: {cursor!r:.80} is not one of this engine's")
    return number(key), id


def move(state: QueueState, moves: Sequence[Move], now: int) -> list[Moved]:
    admit(state, sum(_will_put(state, each) for each in moves))
    return [_move(state, each, now) for each in moves]


def _move(state: QueueState, move: Move, now: int) -> Moved:
    slot = state.visible(move.id, now)
    if slot is None:
        return Moved(False, None, None, "there is no such message")
    found = slot.state
    if found not in EXPECTED[move.action]:
        return Moved(False, found, None, f"a {found} message cannot do {move.action}")
    match move.action:
        case Action.CANCEL:
            state.take(slot)
            state.vanish(slot, now)
            state.count("cancelled", Event.CANCEL, move.id)
        case Action.RESCHEDULE | Action.RUN_NOW:
            _reschedule(state, slot, move, now)
        case Action.DISCARD:
            state.take(slot)
            state.vanish(slot, now)
            state.count("discarded", Event.DISCARD, move.id)
        case Action.REPLAY | Action.MARK_REPLAYED:
            return _replay(state, slot, move, now)
    return Moved(True, found)


def _reschedule(state: QueueState, slot: Slot, move: Move, now: int) -> None:
    due = now if move.action is Action.RUN_NOW else when(move.delay, move.due, now)
    state.take(slot)
    state.wait_until(slot, due, now)
    state.note(Event(move.action), move.id)


def _replay(state: QueueState, slot: Slot, move: Move, now: int) -> Moved:
    seen = slot.replayed_as
    if move.number <= len(seen):
        return Moved(True, State.DEAD, seen[move.number - 1])
    if move.number != len(seen) + 1:
        return Moved(False, State.DEAD, None, f"it was replayed {len(seen)} times, not {move.number - 1}")
    new_id = move.replayed_as
    if new_id is None or move.action is Action.REPLAY:
        key = slot.message.unique_key
        if key and (holder := state.holder(key)):
            return Moved(False, State.DEAD, None, f"message {holder} holds its unique_key")
        new_id = replay_id(move.id, move.number)
        _put_again(state, slot.message, new_id, move, now)
    slot.replayed_as = (*seen, new_id)
    state.update(slot)
    state.count("replayed", Event.REPLAY, move.id)
    return Moved(True, State.DEAD, new_id)


def _put_again(state: QueueState, message: Message, new_id: str, move: Move, now: int) -> None:
    if state.known([new_id], now):
        return
    again = msgspec.structs.replace(
        message,
        id=new_id,
        body=message.body if move.body is None else move.body,
        content_type=move.content_type or message.content_type,
        headers=message.headers if move.headers is None else move.headers,
        put_at=now,
        due=now,
        expires=None,  # it would be over at once
        remember=max(message.remember or 0, REPLAY_REMEMBER),
    )
    state.enter([again], now)
    state.counters["put"] += 1


def _will_put(state: QueueState, move: Move) -> bool:
    """Whether this move adds to what waits, for the capacity."""
    if move.action is not Action.REPLAY:
        return False
    slot = state.slot(move.id)
    return slot is not None and slot.state is State.DEAD and move.number == len(slot.replayed_as) + 1
