"""settle and turn: ack, retry, release, bury; stale receipts; one step for a consumer's round."""

from __future__ import annotations

import pytest

from postroom.engine import ClaimRequest
from postroom.errors import InvalidInput
from postroom.limits import LAST_DUE
from postroom.model import Action, Failure, Leased, Outcome, Receipt, Settlement, State, Verb
from postroom.policy import fingerprint
from postroom.testing.contract.base import BOOM, HOUR, MINUTE, SECOND, ContractBase

VERBS = list(Verb)


class SettleContract(ContractBase):
    """Each delivery ends once: ack, retry (counts), release (does not), bury."""

    def test_an_acked_message_is_gone(self) -> None:
        delivery = self.put_and_take()
        assert self.ack(delivery) is Outcome.OK
        assert self.state(delivery.message.id) is None
        assert self.stats.processing == 0

    def test_a_retried_message_comes_back_with_one_more_attempt(self) -> None:
        assert self.retry(self.put_and_take()) is Outcome.OK
        again = self.take()
        assert (again.attempt, again.deliveries) == (1, 2)

    def test_a_retry_waits_for_its_delay(self) -> None:
        delivery = self.put_and_take()
        self.retry(delivery, delay=5 * SECOND)
        assert self.state(delivery.message.id) is State.SCHEDULED
        self.clock.advance("4999ms")
        assert self.claim() == []
        self.clock.advance("1ms")
        assert self.take().attempt == 1

    def test_a_retry_waits_for_its_instant(self) -> None:
        delivery = self.put_and_take()
        self.retry(delivery, due=self.clock() + 5 * SECOND)
        assert self.entry(delivery.message.id).due == self.clock() + 5 * SECOND
        self.clock.advance("4999ms")
        assert self.claim() == []
        self.clock.advance("1ms")
        assert len(self.claim()) == 1

    def test_a_retry_due_in_the_past_is_ready_at_once(self) -> None:
        delivery = self.put_and_take()
        self.retry(delivery, due=self.clock() - MINUTE)
        assert self.claim_ids() == [delivery.message.id]

    def test_a_retry_beyond_the_end_of_order_waits_until_then(self) -> None:
        delivery = self.put_and_take()
        assert self.retry(delivery, delay=50 * 365 * 24 * HOUR) is Outcome.OK
        assert self.entry(delivery.message.id).due == LAST_DUE

    def test_the_first_due_time_stays_with_a_retried_message(self) -> None:
        delivery = self.put_and_take()
        self.retry(delivery, delay=HOUR)
        assert self.entry(delivery.message.id).message.due == delivery.message.due

    def test_a_retry_beyond_max_attempts_is_a_dead_letter(self) -> None:
        id = self.put(max_attempts=2)
        self.retry(self.take(), failure=BOOM)
        assert self.state(id) is State.READY
        assert self.retry(self.take(), failure=BOOM) is Outcome.OK
        entry = self.entry(id)
        assert (entry.state, entry.attempt, entry.last_error) == (State.DEAD, 2, "ValueError: boom")

    def test_a_last_retry_without_a_failure_is_a_dead_letter_with_one(self) -> None:
        id = self.put(max_attempts=1)
        self.retry(self.take())
        assert self.entry(id).failure is not None

    def test_a_released_message_does_not_count_an_attempt(self) -> None:
        assert self.release(self.put_and_take()) is Outcome.OK
        assert self.take().attempt == 0

    def test_releases_never_use_up_the_attempts(self) -> None:
        self.put(max_attempts=1)
        for _ in range(5):
            assert self.release(self.take()) is Outcome.OK
        assert self.stats.ready == 1

    def test_a_release_with_a_delay_waits_and_does_not_count(self) -> None:
        id = self.put(max_attempts=1)
        assert self.release(self.take(), delay=5 * SECOND) is Outcome.OK
        assert self.state(id) is State.SCHEDULED
        self.clock.advance("4999ms")
        assert self.claim() == []
        self.clock.advance("1ms")
        again = self.take()
        assert (again.attempt, again.deliveries) == (0, 2)

    def test_a_release_with_a_delay_is_counted_as_a_release_and_leaves_no_history(self) -> None:
        id = self.put()
        self.release(self.take(), delay=SECOND)
        assert self.stats.counters["released"] == 1
        assert self.stats.counters.get("retried", 0) == 0
        assert self.entry(id).attempts == ()

    def test_a_release_beyond_the_end_of_order_comes_at_its_last_moment(self) -> None:
        delivery = self.put_and_take()
        assert self.release(delivery, delay=40 * 365 * 24 * HOUR) is Outcome.OK
        assert self.entry(delivery.message.id).due == LAST_DUE

    def test_a_release_at_an_instant_is_refused_and_nothing_changed(self) -> None:
        delivery = self.put_and_take()
        with pytest.raises(InvalidInput):
            self.settle(delivery, Verb.RELEASE, due=self.clock() + SECOND)
        assert self.state(delivery.message.id) is State.PROCESSING

    def test_a_buried_message_is_a_dead_letter(self) -> None:
        delivery = self.put_and_take()
        assert self.bury(delivery) is Outcome.OK
        assert self.state(delivery.message.id) is State.DEAD
        assert self.claim_ids() == []

    def test_a_cancelled_delivery_is_gone_and_not_done(self) -> None:
        self.declare(keep_done="1h")
        delivery = self.put_and_take()
        assert self.settle(delivery, Verb.CANCEL) is Outcome.OK
        assert self.state(delivery.message.id) is None
        assert (self.stats.processing, self.stats.dead) == (0, 0)
        assert (self.stats.counters["cancelled"], self.stats.counters.get("acked", 0)) == (1, 0)

    @pytest.mark.parametrize("verb", VERBS)
    def test_whoever_works_on_a_cancelled_message_is_told_that_it_is_gone(self, verb: Verb) -> None:
        delivery = self.put_and_take()
        self.settle(delivery, Verb.CANCEL)
        assert self.settle(delivery, verb, failure=BOOM) is Outcome.GONE
        assert self.engine.renew(self.queue, [delivery.receipt], MINUTE) == [Outcome.GONE]
        assert self.state(delivery.message.id) is None

    def test_a_cancelled_delivery_frees_its_key_and_is_remembered(self) -> None:
        delivery = self.put_and_take(unique_key="user:4", remember=HOUR)
        self.settle(delivery, Verb.CANCEL)
        again = self.message(unique_key="user:4")
        assert self.engine.put(self.queue, [again]).puts[0].created
        assert not self.engine.put(self.queue, [self.message(id=delivery.message.id)]).puts[0].created

    def test_a_cancel_among_other_settlements_is_one_line_of_the_history(self) -> None:
        self.put_many(3)
        first, second, third = self.claim(3)
        settlements = [
            Settlement(first.receipt, Verb.BURY, failure=BOOM),
            Settlement(second.receipt, Verb.CANCEL, failure=BOOM),
            Settlement(third.receipt, Verb.RETRY, failure=Failure(type="IOError")),
        ]
        assert self.engine.settle(self.queue, settlements) == [Outcome.OK] * 3
        (told,) = self.log("cancel")
        assert (told.count, told.ids) == (1, (second.message.id,))
        assert self.entry(first.message.id).last_error == "ValueError: boom"
        assert self.entry(third.message.id).attempts[0].error == "IOError"

    def test_a_cancelled_delivery_makes_room_for_another(self) -> None:
        self.declare(max_in_flight=1)
        self.put_many(2)
        delivery = self.take()
        assert self.claim() == []
        self.settle(delivery, Verb.CANCEL)
        assert len(self.claim()) == 1

    def test_a_batch_of_settlements_gets_an_outcome_for_each(self) -> None:
        self.put_many(3)
        first, second, third = self.claim(3)
        self.ack(second)
        settlements = [Settlement(delivery.receipt) for delivery in (first, second, third)]
        outcomes = self.engine.settle(self.queue, settlements)
        assert outcomes == [Outcome.OK, Outcome.GONE, Outcome.OK]

    def test_the_same_receipt_twice_in_one_call_is_settled_once(self) -> None:
        delivery = self.put_and_take()
        settlements = [Settlement(delivery.receipt, Verb.RETRY), Settlement(delivery.receipt)]
        assert self.engine.settle(self.queue, settlements) == [Outcome.OK, Outcome.LOST]
        assert self.state(delivery.message.id) is State.READY

    def test_a_retry_beyond_the_end_of_order_comes_at_its_last_moment(self) -> None:
        delivery = self.put_and_take()
        assert self.retry(delivery, delay=40 * 365 * 24 * HOUR) is Outcome.OK
        assert self.entry(delivery.message.id).due == LAST_DUE


class FailureContract(ContractBase):
    """A dead letter keeps why it failed, and its last 20 attempts."""

    def test_a_buried_message_keeps_its_failure(self) -> None:
        delivery = self.put_and_take(kind="mail")
        self.clock.advance("3s")
        self.bury(delivery, Failure(type="IOError", text="no route 17", traceback="Traceback …"))
        failure = self.entry(delivery.message.id).failure
        assert failure is not None
        assert (failure.type, failure.text, failure.traceback) == ("IOError", "no route 17", "Traceback …")
        assert failure.fingerprint == fingerprint("mail", failure)

    def test_the_failure_has_the_engines_time(self) -> None:
        delivery = self.put_and_take()
        self.clock.advance("3s")
        self.bury(delivery, Failure(type="IOError", failed_at=17))
        assert self.entry(delivery.message.id).failed_at == self.clock()

    def test_a_fingerprint_of_the_callers_own_is_kept(self) -> None:
        delivery = self.put_and_take()
        self.bury(delivery, Failure(type="IOError", fingerprint="mine"))
        failure = self.entry(delivery.message.id).failure
        assert failure is not None
        assert failure.fingerprint == "mine"

    def test_an_attempt_is_kept_with_its_consumer_and_times(self) -> None:
        id = self.put()
        delivery = self.take(consumer="w1")
        started = self.clock()
        self.clock.advance("3s")
        self.retry(delivery, failure=BOOM)
        (attempt,) = self.entry(id).attempts
        assert (attempt.consumer, attempt.started_at, attempt.ended_at) == ("w1", started, self.clock())
        assert attempt.error == "ValueError: boom"

    def test_a_buried_attempt_is_part_of_the_history(self) -> None:
        entry = self.entry(self.put_dead())
        assert entry.attempt == 1
        assert [attempt.error for attempt in entry.attempts] == ["ValueError: boom"]

    def test_an_attempt_that_ran_out_is_part_of_the_history(self) -> None:
        id = self.put_and_take().message.id
        self.run_out()
        (attempt,) = self.entry(id).attempts
        assert attempt.error.startswith("AckTimeout")

    def test_a_release_is_not_part_of_the_history(self) -> None:
        delivery = self.put_and_take()
        self.release(delivery)
        assert self.entry(delivery.message.id).attempts == ()

    def test_the_last_twenty_attempts_are_kept(self) -> None:
        id = self.put(max_attempts=30)
        for number in range(25):
            self.retry(self.take(), failure=Failure(type="E", text=str(number)))
        errors = [attempt.error for attempt in self.entry(id).attempts]
        assert errors == [f"E: {number}" for number in range(5, 25)]

    def test_a_failure_that_no_store_could_write_is_kept_all_the_same(self) -> None:
        delivery = self.put_and_take()
        self.bury(delivery, Failure(type="Bad", text="\udcff" + "x" * 100_000, traceback="y" * 100_000))
        failure = self.entry(delivery.message.id).failure
        assert failure is not None
        assert len(failure.text.encode()) <= 8_000
        assert len(failure.traceback) <= 16_000


class StaleReceiptContract(ContractBase):
    """Promise 4: a stale receipt changes nothing and is told so."""

    def settle_stale(self, delivery: Leased, verb: Verb) -> Outcome:
        """Settle with a stale receipt, and see that nothing of it happened."""
        before = self.engine.get(self.queue, [delivery.message.id]), self.stats
        outcome = self.settle(delivery, verb, failure=BOOM)
        assert (self.engine.get(self.queue, [delivery.message.id]), self.stats) == before
        return outcome

    @pytest.mark.parametrize("verb", VERBS)
    def test_the_receipt_of_an_acked_message_is_gone(self, verb: Verb) -> None:
        delivery = self.put_and_take()
        self.ack(delivery)
        assert self.settle_stale(delivery, verb) is Outcome.GONE

    @pytest.mark.parametrize("verb", VERBS)
    def test_the_receipt_of_a_kept_finished_message_is_gone(self, verb: Verb) -> None:
        self.declare(keep_done="1h")
        delivery = self.put_and_take()
        self.ack(delivery)
        assert self.settle_stale(delivery, verb) is Outcome.GONE

    @pytest.mark.parametrize("verb", VERBS)
    def test_the_receipt_of_a_remembered_message_is_gone(self, verb: Verb) -> None:
        delivery = self.put_and_take(remember=HOUR)
        self.ack(delivery)
        assert self.settle_stale(delivery, verb) is Outcome.GONE

    @pytest.mark.parametrize("verb", VERBS)
    def test_a_receipt_from_before_a_release_is_lost(self, verb: Verb) -> None:
        delivery = self.put_and_take()
        self.release(delivery)
        assert self.settle_stale(delivery, verb) is Outcome.LOST
        self.take()
        assert self.settle_stale(delivery, verb) is Outcome.LOST

    @pytest.mark.parametrize("verb", VERBS)
    def test_a_receipt_from_before_a_retry_is_lost(self, verb: Verb) -> None:
        delivery = self.put_and_take()
        self.retry(delivery)
        assert self.settle_stale(delivery, verb) is Outcome.LOST
        self.take()
        assert self.settle_stale(delivery, verb) is Outcome.LOST

    @pytest.mark.parametrize("verb", VERBS)
    def test_a_receipt_from_before_a_reclaim_is_lost(self, verb: Verb) -> None:
        delivery = self.put_and_take()
        self.run_out()
        assert self.settle_stale(delivery, verb) is Outcome.LOST
        self.take()
        assert self.settle_stale(delivery, verb) is Outcome.LOST

    @pytest.mark.parametrize("verb", VERBS)
    def test_the_receipt_of_a_dead_message_is_lost(self, verb: Verb) -> None:
        delivery = self.put_and_take()
        self.bury(delivery)
        assert self.settle_stale(delivery, verb) is Outcome.LOST

    def test_the_receipt_of_a_discarded_message_is_gone(self) -> None:
        delivery = self.put_and_take()
        self.bury(delivery)
        self.move(delivery.message.id, Action.DISCARD)
        assert self.settle_stale(delivery, Verb.ACK) is Outcome.GONE

    def test_an_id_put_again_is_not_held_by_an_old_receipt(self) -> None:
        delivery = self.put_and_take()
        self.ack(delivery)
        self.put(id=delivery.message.id)
        self.take()
        assert self.settle_stale(delivery, Verb.ACK) is Outcome.LOST

    def test_a_made_up_receipt_is_gone(self) -> None:
        receipt = Receipt(self.queue, self.message().id, "00" * 8)
        assert self.engine.settle(self.queue, [Settlement(receipt)]) == [Outcome.GONE]

    def test_a_made_up_token_is_lost(self) -> None:
        receipt = self.put_and_take().receipt._replace(token="00" * 8)
        assert self.engine.settle(self.queue, [Settlement(receipt)]) == [Outcome.LOST]
        assert self.stats.processing == 1

    def test_renew_extend_and_start_tell_it_too(self) -> None:
        lost, gone = self.put_and_take(), self.put_and_take()
        self.retry(lost, delay=MINUTE)
        self.ack(gone)
        receipts, told = [lost.receipt, gone.receipt], [Outcome.LOST, Outcome.GONE]
        assert self.engine.renew(self.queue, receipts, SECOND) == told
        assert self.engine.extend(self.queue, receipts, checkpoint=b"no") == told
        assert self.start(*receipts) == told
        assert self.entry(lost.message.id).checkpoint is None


class TurnContract(ContractBase):
    """turn settles, reports starts and claims the next, in this order and in one step."""

    def test_a_turn_settles_starts_and_claims(self) -> None:
        ids = self.put_many(3)
        first, second = self.claim(2, start=1, lease=30 * SECOND)
        turned = self.engine.turn(
            self.queue, [Settlement(first.receipt)], [second.receipt], ClaimRequest(n=5)
        )
        assert (turned.settled, turned.started) == ([Outcome.OK], [Outcome.OK])
        assert [delivery.message.id for delivery in turned.claimed.deliveries] == ids[2:]
        assert self.entry(ids[1]).started_at == self.clock()

    def test_a_turn_without_a_request_claims_nothing(self) -> None:
        self.put()
        assert self.engine.turn(self.queue, [], [], None).claimed.deliveries == []
        assert self.stats.ready == 1

    def test_what_a_turn_settles_makes_room_for_what_it_claims(self) -> None:
        self.declare(max_in_flight=1)
        first, second = self.put_many(2)
        turned = self.engine.turn(self.queue, [Settlement(self.take().receipt)], [], ClaimRequest())
        assert [delivery.message.id for delivery in turned.claimed.deliveries] == [second]
        assert self.state(first) is None

    def test_what_a_turn_settles_cannot_be_started(self) -> None:
        self.put()
        receipt = self.take(start=0).receipt
        turned = self.engine.turn(self.queue, [Settlement(receipt)], [receipt], None)
        assert (turned.settled, turned.started) == ([Outcome.OK], [Outcome.GONE])

    def test_a_start_that_is_reported_twice_is_one_start(self) -> None:
        self.put(ack_timeout=10 * SECOND)
        delivery = self.take(start=0, lease=30 * SECOND)
        assert self.start(delivery.receipt) == [Outcome.OK]
        self.clock.advance("4s")
        assert self.start(delivery.receipt) == [Outcome.OK]
        self.renew(delivery)
        assert self.time_left(delivery) == 6 * SECOND

    def test_the_start_of_a_reclaimed_message_is_lost(self) -> None:
        self.put()
        delivery = self.take(start=0)
        self.run_out()
        assert self.start(delivery.receipt) == [Outcome.LOST]

    def test_settlements_and_starts_are_one_batch(self) -> None:
        receipts = [Receipt(self.queue, self.message().id, "x") for _ in range(1_001)]
        with pytest.raises(InvalidInput):
            self.engine.turn(self.queue, [Settlement(r) for r in receipts[:500]], receipts[500:], None)
