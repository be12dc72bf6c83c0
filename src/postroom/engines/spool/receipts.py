"""Which side gave a delivery: the spool marks the tokens that it gives, so that any process can tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from postroom.engine import ClaimRequest
from postroom.engines.spool.waiting import SpoolWaiter
from postroom.model import Leased, Outcome, Receipt, Settlement
from postroom.waiter import Waiter

T = TypeVar("T")

_MARK = "spool:"


class Split:
    """Receipts by the side that gave them, and the answers of both sides in the order of the receipts."""

    def __init__(self, receipts: Sequence[Receipt]) -> None:
        self._receipts = receipts
        self._ours = [receipt.token.startswith(_MARK) for receipt in receipts]
        self.any_near: bool = any(self._ours)
        self.any_far: bool = not all(self._ours)

    def near(self, items: Sequence[T]) -> list[T]:
        return [item for item, ours in zip(items, self._ours, strict=True) if ours]

    def far(self, items: Sequence[T]) -> Sequence[T]:
        if not self.any_near:
            return items
        return [item for item, ours in zip(items, self._ours, strict=True) if not ours]

    def bare(self) -> list[Receipt]:
        """Those of the spool, as it knows them."""
        return [bare(receipt) for receipt in self.near(self._receipts)]

    def joined(self, near: Sequence[Outcome], far: Sequence[Outcome]) -> list[Outcome]:
        ours, theirs = iter(near), iter(far)
        return [next(ours) if own else next(theirs) for own in self._ours]


def bare(receipt: Receipt) -> Receipt:
    return receipt._replace(token=receipt.token.removeprefix(_MARK))


def bare_settlement(settlement: Settlement) -> Settlement:
    return msgspec.structs.replace(settlement, receipt=bare(settlement.receipt))


def marked(leased: Leased) -> Leased:
    return msgspec.structs.replace(leased, token=_MARK + leased.token)


def with_waiter(request: ClaimRequest, side: Callable[[SpoolWaiter], Waiter | None]) -> ClaimRequest:
    """The same request with the waiter of one side."""
    if isinstance(request.waiter, SpoolWaiter):
        return msgspec.structs.replace(request, waiter=side(request.waiter))
    return request
