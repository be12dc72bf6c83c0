"""renew and extend: who is alive, and how long the work may take."""

from __future__ import annotations

import pytest

from postroom.engine import ClaimRequest
from postroom.errors import InvalidInput
from postroom.limits import MAX_CHECKPOINT, MAX_EXTENDED
from postroom.model import Leased, Outcome, Settlement, State
from postroom.testing.contract.base import BOOM, MINUTE, SECOND, ContractBase


class LeaseContract(ContractBase):
    """deadline = min(now + lease, ack deadline); an overdue delivery is still its consumer's."""

    def test_a_consumer_without_a_heartbeat_has_the_ack_timeout(self) -> None:
        self.declare(lease="10s", ack_timeout="20s")
        assert self.put_and_take().deadline == self.clock() + 20 * SECOND

    def test_a_consumer_with_a_heartbeat_has_its_lease(self) -> None:
        self.put()
        assert self.take(lease=5 * SECOND).deadline == self.clock() + 5 * SECOND

    def test_a_lease_ends_with_the_ack_timeout(self) -> None:
        self.put(ack_timeout=5 * SECOND)
        assert self.take(lease=MINUTE).deadline == self.clock() + 5 * SECOND

    def test_without_an_ack_timeout_the_lease_decides(self) -> None:
        self.declare(lease="10s", ack_timeout=None)
        delivery = self.put_and_take()
        assert delivery.ack_timeout is None
        assert delivery.deadline == self.clock() + 10 * SECOND

    def test_an_unstarted_delivery_has_no_ack_deadline(self) -> None:
        self.put(ack_timeout=5 * SECOND)
        assert self.take(start=0, lease=20 * SECOND).deadline == self.clock() + 20 * SECOND

    def test_the_ack_timeout_counts_from_the_start_not_from_the_claim(self) -> None:
        self.put(ack_timeout=10 * SECOND)
        delivery = self.take(start=0, lease=30 * SECOND)
        self.clock.advance("7s")
        self.start(delivery.receipt)
        assert self.time_left(delivery) == 10 * SECOND

    def test_a_renewed_lease_counts_from_now(self) -> None:
        self.put()
        delivery = self.take(lease=10 * SECOND)
        self.clock.advance("4s")
        assert self.renew(delivery, lease=10 * SECOND) is Outcome.OK
        assert self.time_left(delivery) == 10 * SECOND

    def test_renew_never_passes_the_ack_deadline(self) -> None:
        self.put(ack_timeout=15 * SECOND)
        delivery = self.take(lease=10 * SECOND)
        self.clock.advance("8s")
        assert self.renew(delivery, lease=10 * SECOND) is Outcome.OK
        assert self.time_left(delivery) == 7 * SECOND

    def test_a_heartbeat_does_not_save_work_that_takes_too_long(self) -> None:
        self.put(ack_timeout=15 * SECOND)
        delivery = self.take(lease=10 * SECOND)
        for _ in range(8):
            self.clock.advance("2s")
            self.renew(delivery, lease=10 * SECOND)
        assert self.engine.sweep(self.queue).reclaimed == 1

    def test_without_an_ack_timeout_a_heartbeat_holds_for_ever(self) -> None:
        self.declare(lease="10s", ack_timeout=None)
        delivery = self.put_and_take()
        for _ in range(100):
            self.clock.advance("4s")
            assert self.renew(delivery, lease=10 * SECOND) is Outcome.OK
            assert self.engine.sweep(self.queue).reclaimed == 0

    def test_renew_answers_for_each_receipt(self) -> None:
        self.put_many(2)
        first, second = self.claim(2)
        self.ack(first)
        outcomes = self.engine.renew(self.queue, [first.receipt, second.receipt], 10 * SECOND)
        assert outcomes == [Outcome.GONE, Outcome.OK]

    def test_a_start_without_a_heartbeat_has_its_whole_ack_timeout(self) -> None:
        self.declare(lease="30s", ack_timeout="10m")
        self.put()
        delivery = self.take(start=0)
        self.start(delivery.receipt)
        assert self.time_left(delivery) == 600 * SECOND


class ExtendContract(ContractBase):
    """Only extend moves the ack deadline: to now + its ack_timeout, or a given span."""

    def test_extend_gives_the_ack_timeout_again(self) -> None:
        delivery = self.put_and_take(ack_timeout=10 * SECOND)
        self.clock.advance("8s")
        assert self.extend(delivery) is Outcome.OK
        assert self.time_left(delivery) == 10 * SECOND

    def test_extend_gives_the_span_asked_for(self) -> None:
        delivery = self.put_and_take(ack_timeout=10 * SECOND)
        assert self.extend(delivery, span=5 * MINUTE) is Outcome.OK
        assert self.time_left(delivery) == 5 * MINUTE

    def test_a_heartbeat_goes_on_to_limit_an_extended_delivery(self) -> None:
        delivery = self.put_and_take(ack_timeout=10 * SECOND)
        self.extend(delivery, span=5 * MINUTE, lease=20 * SECOND)
        assert self.time_left(delivery) == 20 * SECOND

    def test_renew_reaches_up_to_the_moved_ack_deadline(self) -> None:
        delivery = self.put_and_take(ack_timeout=10 * SECOND)
        self.extend(delivery, span=25 * SECOND, lease=20 * SECOND)
        self.clock.advance("10s")
        self.renew(delivery, lease=20 * SECOND)
        assert self.time_left(delivery) == 15 * SECOND

    def test_without_an_ack_timeout_a_span_limits_the_work(self) -> None:
        self.declare(lease="30s", ack_timeout=None)
        delivery = self.put_and_take()
        self.extend(delivery, span=5 * SECOND, lease=30 * SECOND)
        self.renew(delivery, lease=30 * SECOND)
        assert self.time_left(delivery) == 5 * SECOND

    def test_the_next_attempt_has_its_own_ack_timeout_again(self) -> None:
        delivery = self.put_and_take(ack_timeout=10 * SECOND)
        self.extend(delivery, span=5 * MINUTE)
        self.retry(delivery)
        assert self.take().deadline == self.clock() + 10 * SECOND

    def test_extend_answers_for_each_receipt(self) -> None:
        self.put_many(2)
        first, second = self.claim(2)
        self.ack(first)
        outcomes = self.engine.extend(self.queue, [first.receipt, second.receipt])
        assert outcomes == [Outcome.GONE, Outcome.OK]

    def test_how_often_is_counted_with_the_delivery(self) -> None:
        delivery = self.put_and_take()
        assert self.entry(delivery.message.id).extended == 0
        self.extend(delivery)
        self.extend(delivery, span=MINUTE, checkpoint=b"page 7")
        self.renew(delivery, lease=10 * SECOND)  # a heartbeat is none
        assert self.entry(delivery.message.id).extended == 2

    def test_a_failed_attempt_keeps_how_often_and_the_next_begins_anew(self) -> None:
        delivery = self.put_and_take()
        self.extend(delivery)
        self.retry(delivery)
        again = self.take()
        self.extend(again)
        self.extend(again)
        self.run_out()
        entry = self.entry(self.take().message.id)
        assert [attempt.extended for attempt in entry.attempts] == [1, 2]
        assert entry.extended == 0

    def test_a_dead_letter_tells_how_often(self) -> None:
        delivery = self.put_and_take()
        self.extend(delivery)
        self.bury(delivery)
        (letter,) = self.engine.find(self.queue, State.DEAD).entries
        assert (letter.attempts[0].extended, letter.extended) == (1, 0)

    def test_what_is_handed_back_begins_anew(self) -> None:
        delivery = self.put_and_take()
        self.extend(delivery)
        self.release(delivery)
        assert self.entry(self.take().message.id).extended == 0

    def test_it_is_counted_up_to_a_bound(self) -> None:
        delivery = self.put_and_take()
        self.engine.extend(self.queue, [delivery.receipt] * (MAX_EXTENDED - 1))
        self.extend(delivery)
        self.extend(delivery)
        entry = self.entry(delivery.message.id)
        assert (entry.extended, entry.consumer, entry.attempt) == (MAX_EXTENDED, "", 0)
        assert self.ack(delivery) is Outcome.OK


class CheckpointContract(ContractBase):
    """A checkpoint (at most 64 KB) is kept with the message, and the next attempt can read it."""

    def test_the_next_attempt_reads_the_checkpoint(self) -> None:
        delivery = self.put_and_take()
        self.extend(delivery, checkpoint=b"page 7")
        self.retry(delivery)
        assert self.take().checkpoint == b"page 7"

    def test_a_checkpoint_survives_a_reclaim_and_a_release(self) -> None:
        self.extend(self.put_and_take(), checkpoint=b"page 7")
        self.run_out()
        self.release(self.take())
        assert self.take().checkpoint == b"page 7"

    def test_a_checkpoint_can_be_looked_at(self) -> None:
        delivery = self.put_and_take()
        self.extend(delivery, checkpoint=b"page 7")
        assert self.entry(delivery.message.id).checkpoint == b"page 7"

    def test_the_last_checkpoint_counts(self) -> None:
        delivery = self.put_and_take()
        self.extend(delivery, checkpoint=b"page 7")
        self.extend(delivery, checkpoint=b"page 8")
        self.extend(delivery)
        assert self.entry(delivery.message.id).checkpoint == b"page 8"

    def test_a_checkpoint_of_64_kilobytes_fits(self) -> None:
        delivery = self.put_and_take()
        assert self.extend(delivery, checkpoint=bytes(MAX_CHECKPOINT)) is Outcome.OK

    def test_a_larger_checkpoint_is_refused_and_nothing_changed(self) -> None:
        delivery = self.put_and_take()
        self.clock.advance("5s")
        before = self.entry(delivery.message.id)
        with pytest.raises(InvalidInput):
            self.extend(delivery, span=MINUTE, checkpoint=bytes(MAX_CHECKPOINT + 1))
        assert self.entry(delivery.message.id) == before


class OverdueContract(ContractBase):
    """An overdue delivery can still be settled, renewed and extended until it is reclaimed."""

    def overdue(self) -> Leased:
        self.put()
        delivery = self.take(lease=10 * SECOND)
        self.keep_in_touch("11s")
        assert self.stats.overdue == 1
        return delivery

    def test_an_overdue_delivery_is_processing_until_it_is_reclaimed(self) -> None:
        assert self.state(self.overdue().message.id) is State.PROCESSING

    def test_a_delivery_is_not_overdue_before_its_deadline(self) -> None:
        self.put()
        self.take(lease=10 * SECOND)
        self.keep_in_touch("9999ms")
        assert self.stats.overdue == 0
        assert self.engine.sweep(self.queue).reclaimed == 0

    def test_an_overdue_delivery_can_be_acked(self) -> None:
        assert self.ack(self.overdue()) is Outcome.OK

    def test_an_overdue_delivery_can_be_retried(self) -> None:
        assert self.retry(self.overdue()) is Outcome.OK
        assert self.take().attempt == 1

    def test_an_overdue_delivery_can_be_released(self) -> None:
        assert self.release(self.overdue()) is Outcome.OK
        assert self.take().attempt == 0

    def test_an_overdue_delivery_can_be_buried(self) -> None:
        delivery = self.overdue()
        assert self.bury(delivery) is Outcome.OK
        assert self.entry(delivery.message.id).last_error == BOOM.summary

    def test_an_overdue_delivery_can_be_renewed_and_is_then_safe(self) -> None:
        delivery = self.overdue()
        assert self.renew(delivery, lease=10 * SECOND) is Outcome.OK
        assert self.stats.overdue == 0
        assert self.engine.sweep(self.queue).reclaimed == 0

    def test_an_overdue_delivery_can_be_extended_and_is_then_safe(self) -> None:
        delivery = self.put_and_take(ack_timeout=10 * SECOND)
        self.keep_in_touch("11s")
        assert self.extend(delivery) is Outcome.OK
        assert self.engine.sweep(self.queue).reclaimed == 0

    def test_a_turn_settles_before_it_reclaims(self) -> None:
        delivery = self.overdue()
        turned = self.engine.turn(self.queue, [Settlement(delivery.receipt)], [], ClaimRequest())
        assert turned.settled == [Outcome.OK]
        assert turned.claimed.deliveries == []
