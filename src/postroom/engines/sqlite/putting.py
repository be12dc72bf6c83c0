"""A put as a step: the calls of several threads that are committed together are also kept together."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.engines.sqlite.transaction import DEFAULT, Transaction
from postroom.engines.steps import put
from postroom.model import Accepted, NewMessage


class Putting:
    """One call. Those with the same `alike` may be run `together`, in a fraction of the statements."""

    def __init__(self, queue: str, messages: Sequence[NewMessage]) -> None:
        self.alike = queue
        self._messages = messages

    def __call__(self, transaction: Transaction) -> Accepted:
        return transaction.change(
            self.alike, lambda state, now: put.accept(state, self._messages, now), DEFAULT
        )

    @staticmethod
    def together(calls: Sequence[Putting], transaction: Transaction) -> list[Accepted] | None:
        """What each of them would have answered one after the other; None if each has to be run alone."""
        messages = [call._messages for call in calls]
        return transaction.change(
            calls[0].alike, lambda state, now: put.accept_together(state, messages, now), DEFAULT
        )
