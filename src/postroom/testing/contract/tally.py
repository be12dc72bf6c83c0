"""tally: how many are due, or died, between moments; by an index, never by a look at the messages."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from postroom.errors import InvalidInput
from postroom.limits import LAST_DUE, MAX_BATCH
from postroom.model import Action, Failure, State
from postroom.testing.contract.base import MINUTE, SECOND, ContractBase


class TallyContract(ContractBase):
    """What `tally` counts is what `find` would find."""

    def due(self, *edges: int) -> list[int]:
        """How many are due between each two of these spans from now."""
        found = self.engine.tally(self.queue, State.SCHEDULED, [self.clock() + edge for edge in edges])
        assert found.whole
        return found.counts

    def died(self, edges: Sequence[int], group: str | None = None) -> list[int]:
        return self.engine.tally(self.queue, State.DEAD, edges, group=group).counts

    def die_of(self, fingerprint: str) -> str:
        return self.put(failure=Failure(type="Any", fingerprint=fingerprint))

    def test_in_an_unknown_queue_nothing_is_due(self) -> None:
        assert self.due(0, MINUTE, 2 * MINUTE) == [0, 0]
        assert self.engine.queues([self.queue]) == []

    def test_each_span_begins_with_its_first_moment_and_ends_before_its_last(self) -> None:
        for delay in (1, 999, 1_000, 1_000, 1_001, 5_000):
            self.put(delay=delay)
        assert self.due(1, 1_000, 1_001, 5_000) == [2, 2, 1]
        assert self.due(5_000, 5_001) == [1]
        assert self.due(0, 0, MINUTE) == [0, 6]

    @pytest.mark.parametrize("priority", [0, 5, 255])
    def test_a_priority_moves_nothing_into_another_span(self, priority: int) -> None:
        self.put(delay=1_000, priority=priority)
        assert self.due(999, 1_000, 1_001) == [0, 1]

    def test_what_is_ready_processing_or_dead_is_not_due(self) -> None:
        self.put()
        self.put_and_take(priority=9)
        self.die_of("a")
        self.put(delay=MINUTE)
        assert self.engine.tally(self.queue, State.SCHEDULED, [0, LAST_DUE + 1]).counts == [1]

    def test_what_waits_for_another_attempt_is_due_like_the_rest(self) -> None:
        self.retry(self.put_and_take(), delay=30 * SECOND)
        assert self.due(0, MINUTE) == [1]

    def test_what_leaves_or_moves_is_counted_where_it_is(self) -> None:
        gone, moved = self.put(delay=10 * SECOND), self.put(delay=10 * SECOND)
        self.move(gone, Action.CANCEL)
        self.move(moved, Action.RESCHEDULE, delay=90 * SECOND)
        assert self.due(0, MINUTE, 2 * MINUTE) == [0, 1]
        self.engine.purge(self.queue)
        assert self.due(0, MINUTE, 2 * MINUTE) == [0, 0]

    def test_what_is_overdue_but_not_yet_promoted_is_counted_in_its_time(self) -> None:
        self.put(delay=SECOND)
        self.clock.advance("5s")
        assert self.due(-5 * SECOND, 0, MINUTE) == [1, 0]
        self.claim()
        assert self.due(-5 * SECOND, 0, MINUTE) == [0, 0]

    def test_deaths_by_time_and_by_group(self) -> None:
        start = self.clock()
        for name in ("a", "b", "a"):
            self.die_of(name)
            self.clock.advance("10s")
        edges = [start, start + 1, start + 20_000, start + 20_001]
        assert self.died(edges) == [1, 1, 1]
        assert self.died(edges, "a") == [1, 0, 1]
        assert self.died(edges, "b") == [0, 1, 0]
        assert self.died(edges, "") == self.died(edges, "ab") == [0, 0, 0]

    def test_a_letter_that_is_let_go_is_counted_no_more(self) -> None:
        start, id = self.clock(), self.die_of("a")
        self.die_of("a")
        self.move(id, Action.DISCARD)
        assert self.died([start, start + 1], "a") == [1]

    def test_many_edges_and_many_messages(self) -> None:
        self.engine.put(self.queue, [self.message(delay=n * SECOND) for n in range(1, MAX_BATCH)])
        assert self.due(*(n * SECOND for n in range(1, MAX_BATCH + 1))) == [1] * (MAX_BATCH - 1)
        assert self.due(0, MAX_BATCH * SECOND) == [MAX_BATCH - 1]

    @pytest.mark.parametrize(
        "edges", [[], [5], [5, 4], [-1, 5], [0, LAST_DUE + 2], [0, 1.5], list(range(MAX_BATCH + 1))]
    )
    def test_edges_that_make_no_sense_are_refused(self, edges: list[int]) -> None:
        with pytest.raises(InvalidInput):
            self.engine.tally(self.queue, State.SCHEDULED, edges)

    @pytest.mark.parametrize("state", [State.READY, State.PROCESSING, State.DONE, "asleep", None])
    def test_other_states_have_no_time_to_count_by(self, state: State) -> None:
        with pytest.raises(InvalidInput):
            self.engine.tally(self.queue, state, [0, 1])

    def test_only_dead_letters_have_a_group(self) -> None:
        with pytest.raises(InvalidInput):
            self.engine.tally(self.queue, State.SCHEDULED, [0, 1], group="a")
