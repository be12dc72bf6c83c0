"""What a policy limits: capacity, rate, max_in_flight."""

from __future__ import annotations

import pytest

from postroom.errors import QueueFull
from postroom.model import BlockedBy, Outcome, State
from postroom.policy import Rate
from postroom.testing.contract.base import MINUTE, SECOND, ContractBase


class CapacityContract(ContractBase):
    """Promise 8: a put beyond capacity is refused before anything of it is written."""

    def test_up_to_capacity_is_accepted(self) -> None:
        self.declare(capacity=3)
        assert self.engine.put(self.queue, [self.message() for _ in range(3)]).depth == 3

    def test_beyond_capacity_is_refused(self) -> None:
        self.declare(capacity=3)
        self.put_many(3)
        with pytest.raises(QueueFull) as refused:
            self.put()
        assert refused.value.reason == "capacity"

    def test_beyond_capacity_nothing_of_the_call_is_put(self) -> None:
        self.declare(capacity=3)
        messages = [self.message() for _ in range(4)]
        with pytest.raises(QueueFull):
            self.engine.put(self.queue, messages)
        assert self.stats.depth == 0
        assert self.engine.put(self.queue, messages[:3]).puts[0].created

    def test_scheduled_messages_count_against_capacity(self) -> None:
        self.declare(capacity=1)
        self.put(delay=MINUTE)
        with pytest.raises(QueueFull):
            self.put()

    def test_processing_and_dead_do_not_count_against_capacity(self) -> None:
        self.declare(capacity=1)
        self.put_dead()
        self.put_and_take()
        assert self.state(self.put()) is State.READY

    def test_a_repeated_put_is_accepted_at_full_capacity(self) -> None:
        self.declare(capacity=2)
        ids = [self.put(), self.put(unique_key="user:4")]
        assert not self.put_again(ids[0])
        assert self.put(unique_key="user:4") == ids[1]

    def test_only_what_is_new_in_a_call_has_to_fit_into_capacity(self) -> None:
        self.declare(capacity=2)
        message = self.message()
        self.engine.put(self.queue, [message])
        accepted = self.engine.put(self.queue, [message, self.message()])
        assert ([put.created for put in accepted.puts], accepted.depth) == ([False, True], 2)

    def test_the_same_id_twice_in_a_call_needs_capacity_once(self) -> None:
        self.declare(capacity=1)
        message = self.message()
        assert self.engine.put(self.queue, [message, message]).depth == 1

    @pytest.mark.parametrize("by", ["release", "retry"])
    def test_capacity_never_refuses_what_comes_back(self, by: str) -> None:
        self.declare(capacity=1)
        delivery = self.put_and_take()
        self.put()
        assert getattr(self, by)(delivery) is Outcome.OK
        assert self.stats.depth == 2

    def test_capacity_never_refuses_a_reclaim(self) -> None:
        self.declare(capacity=1)
        self.put_and_take()
        self.put()
        self.run_out()
        assert self.stats.depth == 2

    def test_a_claim_makes_room_in_a_full_queue(self) -> None:
        self.declare(capacity=1)
        self.put_and_take()
        assert self.state(self.put()) is State.READY


class RateContract(ContractBase):
    """Rate counts claims; the bucket holds one second's worth, at least one."""

    def test_the_rate_bucket_holds_one_seconds_worth(self) -> None:
        self.declare(rate="5/s")
        self.put_many(20)
        assert len(self.claim(20)) == 5

    def test_an_empty_rate_bucket_gives_nothing_and_says_why(self) -> None:
        self.declare(rate="5/s")
        self.put_many(20)
        self.claim(5)
        claimed = self.ask(20)
        assert (claimed.deliveries, claimed.blocked_by) == ([], BlockedBy.RATE)

    def test_next_wake_is_the_refill_of_the_rate(self) -> None:
        self.declare(rate="5/s")
        self.put_many(20)
        self.claim(5)
        assert self.ask().next_wake == 200

    def test_stats_tell_how_long_the_rate_holds_the_next_one_back(self) -> None:
        self.declare(rate="5/s")
        self.put_many(8)
        assert self.stats.throttled == 0
        self.claim(5)
        assert self.stats.throttled == 200
        self.clock.advance("150ms")
        assert self.stats.throttled == 50
        self.clock.advance("50ms")
        assert self.stats.throttled == 0

    @pytest.mark.parametrize("rate", ["1/s", "3/s", "7/s", "1000/s", "30/m", "7/m", "500/h"])
    def test_after_the_refill_of_the_rate_one_is_claimable(self, rate: str) -> None:
        self.declare(rate=rate, lease="1d", ack_timeout="1d")  # no deadline comes before a refill
        burst = int(Rate.parse(rate).burst)
        self.put_many(min(1_000, burst + 10))
        self.put_many(10)
        assert len(self.claim(burst)) == burst
        for _ in range(5):
            wake = self.ask().next_wake
            assert wake > 0
            self.clock.advance(f"{wake}ms")
            assert len(self.claim(1)) == 1

    def test_before_the_refill_of_the_rate_none_is_claimable(self) -> None:
        self.declare(rate="30/m")
        self.put_many(2)
        self.claim()
        self.clock.advance("1999ms")
        assert self.claim() == []
        self.clock.advance("1ms")
        assert len(self.claim()) == 1

    def test_a_slow_rate_still_holds_one(self) -> None:
        self.declare(rate="1/h")
        self.put_many(2)
        assert len(self.claim(2)) == 1

    def test_an_idle_rate_bucket_does_not_overflow(self) -> None:
        self.declare(rate="5/s")
        self.put_many(20)
        self.claim(5)
        self.clock.advance("1h")
        assert len(self.claim(20)) == 5

    def test_a_released_unstarted_message_is_refunded_to_the_rate(self) -> None:
        self.declare(rate="1/m")
        self.put()
        self.release(self.take(start=0))
        assert len(self.claim()) == 1

    def test_a_released_started_message_is_not_refunded(self) -> None:
        self.declare(rate="1/m")
        self.put()
        self.release(self.take())
        assert self.ask().blocked_by is BlockedBy.RATE

    def test_an_empty_queue_uses_no_rate(self) -> None:
        self.declare(rate="1/m")
        self.claim(5)
        id = self.put()
        assert self.claim_ids() == [id]


class MaxInFlightContract(ContractBase):
    """max_in_flight limits all that is leased at once."""

    def test_max_in_flight_limits_what_is_leased(self) -> None:
        self.declare(max_in_flight=3)
        self.put_many(10)
        assert len(self.claim(2)) + len(self.claim(10)) == 3

    def test_beyond_max_in_flight_a_claim_gives_nothing_and_says_why(self) -> None:
        self.declare(max_in_flight=1)
        self.put_many(2)
        self.claim()
        claimed = self.ask()
        assert (claimed.deliveries, claimed.blocked_by) == ([], BlockedBy.MAX_IN_FLIGHT)

    @pytest.mark.parametrize("by", ["ack", "retry", "release", "bury"])
    def test_a_settle_frees_a_slot(self, by: str) -> None:
        self.declare(max_in_flight=1)
        self.put_many(2)
        delivery = self.take()
        getattr(self, by)(delivery)
        assert len(self.claim(2)) == 1

    def test_a_stale_settle_frees_none(self) -> None:
        self.declare(max_in_flight=1)
        self.put_many(3)
        delivery = self.take()
        self.ack(delivery)
        self.take()
        self.ack(delivery)
        assert self.claim() == []

    def test_a_reclaim_frees_a_slot(self) -> None:
        self.declare(max_in_flight=1)
        self.put_many(2)
        self.claim()
        self.keep_in_touch("30001ms")
        assert len(self.claim(2)) == 1

    def test_unstarted_deliveries_count_as_in_flight(self) -> None:
        self.declare(max_in_flight=2)
        self.put_many(5)
        assert len(self.claim(5, start=0, lease=30 * SECOND)) == 2
