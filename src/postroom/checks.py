"""What every engine refuses alike, before anything is touched: InvalidInput."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.engine import ClaimRequest
from postroom.errors import InvalidInput
from postroom.limits import MAX_BATCH, check_batch, check_between, check_edges, check_span, check_when
from postroom.model import Receipt, Settlement, State, Verb

#: What is counted by time: when it is due, when it died.
_TALLIED = frozenset({State.SCHEDULED, State.DEAD})


def check_tally(state: State, edges: Sequence[int], group: str | None) -> None:
    check_edges(edges)
    if not isinstance(state, str) or state not in _TALLIED:
        raise InvalidInput(f"tally: {state!r:.80} is not one of {', '.join(sorted(_TALLIED))}")
    if group is not None and state is not State.DEAD:
        raise InvalidInput("tally: only dead letters have a group")


def check_find(state: State, group: str | None, correlation_id: str | None) -> None:
    if not isinstance(state, str) or state not in _STATES:
        raise InvalidInput(f"state: {state!r:.80} is not one of {', '.join(State)}")
    if state is not State.DEAD and (group is not None or correlation_id is not None):
        raise InvalidInput("find: only dead letters are found by group or correlation_id")


def check_receipts(queue: str, receipts: Sequence[Receipt]) -> None:
    check_batch(receipts)
    for receipt in receipts:
        if receipt.queue != queue:
            raise InvalidInput(f"a receipt of {receipt.queue!r} does not belong to {queue!r}")


def check_turn(
    queue: str, settlements: Sequence[Settlement], starts: Sequence[Receipt], request: ClaimRequest | None
) -> None:
    """Refuse a turn that makes no sense, before anything is touched: together they are one batch."""
    check_receipts(queue, [*(settlement.receipt for settlement in settlements), *starts])
    for settlement in settlements:
        if settlement.verb is not Verb.ACK:  # most are, and to look an enum up takes time
            _check_ending(settlement)
    if request:
        check_between("n", request.n, 0, MAX_BATCH)
        check_span("lease", request.lease)


def _check_ending(settlement: Settlement) -> None:
    if settlement.verb not in _VERBS:
        raise InvalidInput(f"verb: {settlement.verb!r} is not one of {', '.join(Verb)}")
    check_when(settlement.delay, settlement.due)
    if settlement.verb is Verb.RELEASE and settlement.due is not None:
        raise InvalidInput("due: a release takes a delay, not an instant")


_VERBS = frozenset(Verb)
_STATES = frozenset(State)
