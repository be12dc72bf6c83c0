"""Order: strict priority, FIFO inside a level, and what keeps or changes a place."""

from __future__ import annotations

import pytest

from postroom.model import Action, Outcome
from postroom.testing.contract.base import MINUTE, SECOND, ContractBase


class PriorityContract(ContractBase):
    """Higher is more urgent, strictly; FIFO inside a level."""

    def test_higher_priority_is_claimed_first(self) -> None:
        low, high, normal = (self.put(priority=priority) for priority in (0, 10, 5))
        assert self.claim_ids() == [high, normal, low]

    def test_all_256_levels_are_distinct(self) -> None:
        ids = {priority: self.put(priority=priority) for priority in (*range(1, 256, 2), *range(0, 256, 2))}
        assert self.claim_ids() == [ids[priority] for priority in range(255, -1, -1)]

    def test_priority_is_strict_however_long_something_waited(self) -> None:
        old = self.put(priority=5)
        self.clock.advance("3650d")
        young = self.put(priority=6)
        assert self.claim_ids() == [young, old]

    def test_the_extremes_of_priority_are_strict_too(self) -> None:
        lowest = self.put(priority=0)
        self.clock.advance("200d")
        low, highest = self.put(priority=1), self.put(priority=255)
        assert self.claim_ids() == [highest, low, lowest]

    def test_fifo_inside_a_level(self) -> None:
        ids = []
        for _ in range(20):
            ids.append(self.put())
            self.clock.advance("1ms")
        assert self.claim_ids() == ids

    def test_fifo_inside_one_millisecond(self) -> None:
        messages = [self.message() for _ in range(200)][::-1]
        for start in range(0, 200, 50):
            self.engine.put(self.queue, messages[start : start + 50])
        assert self.claim_ids() == [message.id for message in messages]

    def test_fifo_does_not_follow_the_ids(self) -> None:
        messages = [self.message() for _ in range(5)]
        for message in reversed(messages):
            self.engine.put(self.queue, [message])
        assert self.claim_ids() == [message.id for message in reversed(messages)]

    def test_fifo_when_the_clock_jumps_back(self) -> None:
        ids = []
        for _ in range(5):
            ids.append(self.put())
            self.clock.set_back("1s")
        assert self.claim_ids() == ids

    def test_fifo_over_several_claims(self) -> None:
        ids = self.put_many(10)
        assert [id for _ in range(5) for id in self.claim_ids(2)] == ids


class PlaceContract(ContractBase):
    """What was handed back keeps its place; what was delayed or retried stands at its due time."""

    def test_a_released_message_keeps_its_place(self) -> None:
        first, second = self.put(), self.put()
        delivery = self.take()
        self.clock.advance("5s")
        self.release(delivery)
        assert self.claim_ids() == [first, second]

    def test_released_messages_keep_their_places_in_any_order(self) -> None:
        ids = self.put_many(5)
        for delivery in reversed(self.claim(5)):
            self.release(delivery)
        assert self.claim_ids() == ids

    @pytest.mark.parametrize("start", [0, 1], ids=["unstarted", "started"])
    def test_a_reclaimed_message_keeps_its_place(self, start: int) -> None:
        first, second = self.put(), self.put()
        self.take(start=start)
        self.run_out()
        assert self.claim_ids() == [first, second]

    @pytest.mark.parametrize("way", ["released", "reclaimed", "retried"])
    def test_what_comes_back_is_as_urgent_as_it_was(self, way: str) -> None:
        low, high = self.put(priority=1), self.put(priority=9)
        for delivery in self.claim(2, start=0):
            if way == "released":
                assert self.release(delivery) is Outcome.OK
            elif way == "retried":
                assert self.retry(delivery, delay=SECOND) is Outcome.OK
        normal = self.put(priority=5)
        self.run_out()
        assert self.claim_ids() == [high, normal, low]

    def test_a_delayed_message_stands_where_its_due_time_is(self) -> None:
        delayed = self.put(delay=10 * SECOND)
        self.clock.advance("5s")
        before = self.put()
        self.clock.advance("10s")
        after = self.put()
        assert self.claim_ids() == [before, delayed, after]

    def test_a_retried_message_stands_where_its_due_time_is(self) -> None:
        retried = self.put_and_take()
        self.retry(retried, delay=10 * SECOND)
        self.clock.advance("5s")
        before = self.put()
        self.clock.advance("10s")
        after = self.put()
        assert self.claim_ids() == [before, retried.message.id, after]

    def test_a_rescheduled_message_stands_where_its_new_due_time_is(self) -> None:
        moved = self.put()
        self.move(moved, Action.RESCHEDULE, delay=10 * SECOND)
        self.clock.advance("5s")
        before = self.put()
        self.clock.advance("10s")
        after = self.put()
        assert self.claim_ids() == [before, moved, after]

    def test_delayed_messages_come_in_the_order_of_their_due_times(self) -> None:
        late, soon = self.put(delay=9 * SECOND), self.put(delay=3 * SECOND)
        self.clock.advance("10s")
        assert self.claim_ids() == [soon, late]

    def test_messages_due_in_one_millisecond_are_fifo(self) -> None:
        ids = self.put_many(100, delay=SECOND)
        self.clock.advance("1s")
        assert self.claim_ids() == ids

    def test_a_delayed_message_obeys_priority(self) -> None:
        delayed = self.put(delay=SECOND, priority=4)
        self.clock.advance("1s")
        urgent = self.put(priority=6)
        assert self.claim_ids() == [urgent, delayed]

    def test_a_due_message_does_not_overtake_a_burst_put_before_it_was_due(self) -> None:
        delayed = self.put(delay=1)
        burst = self.put_many(200)
        self.clock.advance("1ms")
        assert self.claim_ids() == [*burst, delayed]

    def test_promotion_by_a_sweep_or_by_a_claim_gives_one_place(self) -> None:
        delayed = self.put(delay=10 * SECOND)
        self.clock.advance("12s")
        self.engine.sweep(self.queue)
        after = self.put()
        assert self.claim_ids() == [delayed, after]


class AgingContract(ContractBase):
    """`aging` turns strictness into "one level is worth so much waiting"."""

    def test_a_level_with_aging_is_worth_less_than_longer_waiting(self) -> None:
        self.declare(aging="60s")
        old = self.put(priority=5)
        self.clock.advance("61s")
        young = self.put(priority=6)
        assert self.claim_ids() == [old, young]

    def test_a_level_with_aging_is_worth_more_than_shorter_waiting(self) -> None:
        self.declare(aging="60s")
        old = self.put(priority=5)
        self.clock.advance("59s")
        young = self.put(priority=6)
        assert self.claim_ids() == [young, old]

    def test_several_levels_of_aging_add_up(self) -> None:
        self.declare(aging="60s")
        old = self.put(priority=0)
        self.clock.advance("10m")
        over, under = self.put(priority=11), self.put(priority=9)
        assert self.claim_ids() == [over, old, under]

    def test_fifo_inside_a_level_with_aging(self) -> None:
        self.declare(aging="60s")
        ids = self.put_many(100, priority=7)
        assert self.claim_ids() == ids

    def test_a_delayed_message_ages_from_its_due_time(self) -> None:
        self.declare(aging="60s")
        delayed = self.put(priority=5, delay=MINUTE)
        self.clock.advance("90s")
        young = self.put(priority=6)
        assert self.claim_ids() == [young, delayed]
