"""claim: never early, bounded, started or not, and what `next_wake` says."""

from __future__ import annotations

from postroom.limits import MAX_CLAIM_BYTES
from postroom.model import State
from postroom.testing.contract.base import HOUR, MINUTE, SECOND, ContractBase


class ClaimContract(ContractBase):
    """A claim leases what is ready; each claim has a fence of its own."""

    def test_a_claimed_message_is_processing(self) -> None:
        delivery = self.put_and_take()
        assert self.state(delivery.message.id) is State.PROCESSING
        assert (self.stats.ready, self.stats.processing) == (0, 1)

    def test_a_claim_gives_at_most_n(self) -> None:
        self.put_many(5)
        assert len(self.claim(3)) == 3
        assert len(self.claim(3)) == 2

    def test_a_claim_of_none_gives_none(self) -> None:
        self.put()
        assert self.claim(0) == []
        assert self.stats.ready == 1

    def test_a_claimed_message_is_not_claimed_again(self) -> None:
        self.put_and_take()
        assert self.claim(10) == []

    def test_an_unknown_queue_has_nothing_to_claim(self) -> None:
        claimed = self.ask(10)
        assert (claimed.deliveries, claimed.blocked_by) == ([], None)

    def test_the_first_delivery_has_no_earlier_attempt(self) -> None:
        delivery = self.put_and_take()
        assert (delivery.attempt, delivery.deliveries, delivery.suspect) == (0, 1, False)

    def test_deliveries_counts_every_claim(self) -> None:
        self.release(self.put_and_take())
        self.release(self.take(start=0))
        delivery = self.take()
        assert (delivery.attempt, delivery.deliveries) == (0, 3)

    def test_the_token_differs_per_claim(self) -> None:
        self.put()
        tokens = set()
        for _ in range(3):
            delivery = self.take()
            tokens.add(delivery.token)
            self.release(delivery)
        assert len(tokens) == 3

    def test_a_delivery_carries_its_limits_from_the_policy(self) -> None:
        self.declare(max_attempts=7, ack_timeout="9s")
        delivery = self.put_and_take()
        assert (delivery.max_attempts, delivery.ack_timeout) == (7, 9 * SECOND)

    def test_a_messages_own_limits_win_over_the_policy(self) -> None:
        self.declare(max_attempts=7, ack_timeout="9s")
        delivery = self.put_and_take(max_attempts=2, ack_timeout=4 * SECOND)
        assert (delivery.max_attempts, delivery.ack_timeout) == (2, 4 * SECOND)
        assert delivery.deadline == self.clock() + 4 * SECOND

    def test_the_consumer_is_shown(self) -> None:
        id = self.put()
        self.claim(1, consumer="worker-7")
        assert self.entry(id).consumer == "worker-7"

    def test_a_consumers_name_is_cut_to_what_every_store_can_keep(self) -> None:
        id = self.put()
        self.claim(1, consumer="\ud800" + "w" * 500)
        assert self.entry(id).consumer == "?" + "w" * 199


class ClaimBytesContract(ContractBase):
    """A claim gives at most 4 MB, but at least one message."""

    def test_a_claim_stops_at_four_megabytes(self) -> None:
        ids = [self.put(body=bytes(2**20)) for _ in range(6)]
        first, second = self.claim_ids(10), self.claim_ids(10)
        assert 1 <= len(first) * 2**20 <= MAX_CLAIM_BYTES
        assert first + second == ids

    def test_a_larger_message_comes_alone(self) -> None:
        large, small = self.put(body=bytes(MAX_CLAIM_BYTES + 1)), self.put()
        assert self.claim_ids(10) == [large]
        assert self.claim_ids(10) == [small]

    def test_a_large_message_behind_small_ones_waits_for_its_own_claim(self) -> None:
        small, large = self.put(body=b"x"), self.put(body=bytes(MAX_CLAIM_BYTES))
        assert self.claim_ids(10) == [small]
        assert self.claim_ids(10) == [large]


class StartContract(ContractBase):
    """A direct claim is started; a prefetching one starts the first `start` and reports the rest."""

    def test_a_direct_claim_is_started(self) -> None:
        self.put_many(3)
        assert [delivery.started for delivery in self.claim(3)] == [True, True, True]

    def test_exactly_the_first_k_are_started(self) -> None:
        self.put_many(4)
        assert [delivery.started for delivery in self.claim(4, start=2)] == [True, True, False, False]

    def test_more_starts_than_messages_start_all(self) -> None:
        self.put_many(2)
        assert [delivery.started for delivery in self.claim(2, start=5)] == [True, True]

    def test_a_start_is_shown_with_its_time(self) -> None:
        self.put()
        delivery = self.take(start=0)
        assert self.entry(delivery.message.id).started_at is None
        self.clock.advance("2s")
        self.start(delivery.receipt)
        assert self.entry(delivery.message.id).started_at == self.clock()


class NeverEarlyContract(ContractBase):
    """Promise 3: nothing is claimable before it is due by the engine's clock."""

    def test_nothing_is_claimable_one_millisecond_before_it_is_due(self) -> None:
        self.put(delay=SECOND)
        self.clock.advance("999ms")
        assert self.claim() == []
        assert self.stats.scheduled == 1

    def test_a_message_is_claimable_when_it_is_due(self) -> None:
        id = self.put(delay=SECOND)
        self.clock.advance("1s")
        assert self.claim_ids() == [id]

    def test_a_due_instant_is_kept_to_the_millisecond(self) -> None:
        id = self.put(due=self.clock() + SECOND)
        self.clock.advance("999ms")
        assert self.claim() == []
        self.clock.advance("1ms")
        assert self.claim_ids() == [id]

    def test_a_sweep_does_not_promote_early(self) -> None:
        id = self.put(delay=SECOND)
        self.clock.advance("999ms")
        assert self.engine.sweep(self.queue).promoted == 0
        assert self.state(id) is State.SCHEDULED

    def test_a_delay_of_years_is_kept(self) -> None:
        id = self.put(delay=10 * 365 * 24 * HOUR)
        self.clock.advance("3649d")
        assert self.claim() == []
        self.clock.advance("1d")
        assert self.claim_ids() == [id]

    def test_a_clock_that_jumps_back_makes_nothing_early(self) -> None:
        id = self.put(delay=10 * SECOND)
        self.touch()
        self.clock.set_back("1h")
        self.clock.advance("59m")
        assert self.claim() == []
        self.clock.advance("70s")
        assert self.claim_ids() == [id]

    def test_a_clock_that_jumps_back_does_not_hide_what_is_ready(self) -> None:
        first = self.put()
        self.clock.set_back("1h")
        second = self.put()
        assert self.claim_ids() == [first, second]

    def test_a_clock_that_jumps_back_does_not_hide_what_was_due(self) -> None:
        due = self.put(delay=5 * SECOND)
        self.clock.advance("6s")
        behind = self.put()
        self.clock.set_back("1h")
        assert self.claim_ids() == [due, behind]

    def test_a_clock_that_jumps_back_shortens_no_deadline(self) -> None:
        delivery = self.put_and_take()
        self.clock.set_back("1h")
        self.renew(delivery)
        deadline = self.entry(delivery.message.id).deadline
        assert deadline is not None
        assert deadline >= delivery.deadline

    def test_a_clock_that_jumps_back_takes_nothing_from_a_consumer(self) -> None:
        delivery = self.put_and_take()
        self.clock.set_back("1h")
        assert self.claim() == []
        assert self.renew(delivery) == "ok"
        assert self.ack(delivery) == "ok"

    def test_more_than_a_thousand_due_come_in_several_claims(self) -> None:
        ids = self.put_many(1_000, delay=SECOND) + self.put_many(500, delay=SECOND)
        self.clock.advance("1s")
        assert self.ask(1).next_wake == 0
        rest = self.claim_ids() + self.claim_ids()
        assert len(set(rest)) == len(rest) == len(ids) - 1

    def test_the_most_urgent_of_many_due_comes_first(self) -> None:
        self.put_many(1_000, delay=SECOND, priority=3)
        self.put_many(200, delay=SECOND, priority=4)
        urgent = self.put(delay=SECOND, priority=9)
        self.clock.advance("1s")
        assert self.claim_ids(1) == [urgent]


class NextWakeContract(ContractBase):
    """`next_wake` is the span until time alone changes something for this consumer."""

    def test_next_wake_is_at_most_a_third_of_the_lease(self) -> None:
        self.declare(lease="9s")
        for _ in range(2):
            assert 0 < self.ask().next_wake <= 3 * SECOND
            self.put(delay=HOUR)

    def test_next_wake_is_at_once_when_more_could_be_claimed(self) -> None:
        self.put_many(2)
        assert self.ask(1).next_wake == 0

    def test_next_wake_is_the_span_to_the_next_due_time(self) -> None:
        self.put(delay=MINUTE)
        self.put(delay=5 * SECOND)
        self.clock.advance("2s")
        assert self.ask().next_wake == 3 * SECOND

    def test_after_next_wake_a_scheduled_message_is_claimable(self) -> None:
        self.put(delay=5 * SECOND)
        self.clock.advance(f"{self.ask().next_wake}ms")
        assert len(self.claim()) == 1

    def test_after_next_wake_an_overdue_message_is_claimable(self) -> None:
        self.put_and_take(ack_timeout=4 * SECOND)
        wake = self.ask().next_wake
        assert 4 * SECOND <= wake <= 4 * SECOND + 1
        self.clock.advance(f"{wake}ms")
        assert len(self.claim()) == 1

    def test_next_wake_is_the_earliest_of_due_times_and_deadlines(self) -> None:
        self.put_and_take(ack_timeout=2 * SECOND)
        self.put(delay=5 * SECOND)
        assert 2 * SECOND <= self.ask().next_wake <= 2 * SECOND + 1

    def test_waiting_consumers_do_not_all_wake_for_one_message(self) -> None:
        self.put(delay=5 * SECOND)
        wakes = sorted(self.ask(waiter=self.waiter()).next_wake for _ in range(6))
        assert wakes == [5_000, 5_025, 5_050, 6_000, 6_000, 6_000]
