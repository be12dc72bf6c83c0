"""A put as a step: the calls of several threads that are committed together are also kept together."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.engines.sqlite.transaction import DEFAULT, Transaction
from postroom.engines.steps import put
from postroom.model import Accepted, NewMessage
from postroom.policy import Policy


class Putting:
    """One call. Those with the same `alike` may be run `together`, in a fraction of the statements."""

    def __init__(self, queue: str, messages: Sequence[NewMessage], policy: Policy = DEFAULT) -> None:
        self.alike = queue
        self._messages = messages
        self._policy = policy

    def __call__(self, transaction: Transaction) -> Accepted:
        """Keep the messages; a queue that does not exist is made with the policy."""
        return transaction.change(
            self.alike, lambda state, now: put.accept(state, self._messages, now), self._policy
        )

    @staticmethod
    def together(calls: Sequence[Putting], transaction: Transaction) -> list[Accepted] | None:
        """What each of them would have answered one after the other; None if each has to be run alone."""
        first, messages = calls[0], [call._messages for call in calls]
        return transaction.change(
            first.alike, lambda state, now: put.accept_together(state, messages, now), first._policy
        )
