"""now, inspect: the engine's clock, and what it says of its own health."""

from __future__ import annotations

import pytest

from postroom.errors import Closed
from postroom.findings import Level
from postroom.testing.contract.base import SECOND, ContractBase


class ClockContract(ContractBase):
    """There is one time, by which everything is due."""

    def test_now_is_the_time_by_which_messages_are_due(self) -> None:
        at = self.engine.now() + SECOND
        self.put(due=at)
        assert not self.claim()
        self.clock.advance("1s")
        assert self.engine.now() >= at
        assert self.claim()

    def test_now_does_not_go_back(self) -> None:
        first = self.engine.now()
        self.clock.advance("5s")
        assert self.engine.now() == first + 5 * SECOND


class InspectContract(ContractBase):
    """Every finding can be read; one that is not fine says what to do."""

    def test_an_engine_has_something_to_say_of_itself(self) -> None:
        assert self.engine.inspect()

    def test_a_finding_that_is_not_fine_says_what_to_do(self) -> None:
        for finding in self.engine.inspect():
            assert finding.level in Level
            assert finding.check
            assert finding.text
            assert (finding.level is Level.OK) == (finding.advice == ""), finding

    def test_to_inspect_changes_nothing(self) -> None:
        self.put()
        before = self.stats
        self.engine.inspect()
        assert self.stats == before
        assert [info.name for info in self.engine.queues()] == [self.queue]

    def test_a_closed_engine_says_neither(self) -> None:
        self.engine.close()
        for look in (self.engine.now, self.engine.inspect):
            with pytest.raises(Closed):
                look()
