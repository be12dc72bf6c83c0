"""waiter: sleep without polling, wake few, lose no ring. (A wait here is bounded and mostly at once.)"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable

from postroom.engine import ClaimRequest
from postroom.model import Action, BlockedBy, Settlement, Verb
from postroom.testing.contract.base import BOOM, MINUTE, QUIET, RING, SECOND, ContractBase
from postroom.waiter import Waiter


def readable(waiter: Waiter, timeout: float = 0) -> bool:
    return bool(select.select([waiter.fileno()], [], [], timeout)[0])


class RingContract(ContractBase):
    """Whatever becomes claimable after `arm` rings."""

    def rings(self, waiter: Waiter) -> None:
        assert waiter.wait(RING) == {self.queue}

    def three(self) -> list[Waiter]:
        """As many waiters as a step rings at most: so that no ring is left to other processes, and late."""
        return [self.waiter() for _ in range(3)]

    def hush(self, waiters: list[Waiter]) -> None:
        for waiter in waiters:
            waiter.clear()

    def test_nothing_rings_without_a_reason(self) -> None:
        assert self.waiter().wait(QUIET) == frozenset()

    def test_a_put_rings(self) -> None:
        waiter = self.waiter()
        self.put()
        self.rings(waiter)

    def test_a_release_rings(self) -> None:
        delivery = self.put_and_take()
        waiter = self.waiter()
        self.release(delivery)
        self.rings(waiter)

    def test_a_retry_without_delay_rings(self) -> None:
        delivery = self.put_and_take()
        waiter = self.waiter()
        self.retry(delivery)
        self.rings(waiter)

    def test_a_reclaim_rings(self) -> None:
        self.put_and_take()
        self.keep_in_touch("30001ms")
        waiter = self.waiter()
        self.engine.sweep(self.queue)
        self.rings(waiter)

    def test_a_promotion_by_a_sweep_rings(self) -> None:
        self.put(delay=SECOND)
        self.clock.advance("1s")
        waiter = self.waiter()
        self.engine.sweep(self.queue)
        self.rings(waiter)

    def test_a_resume_rings(self) -> None:
        self.put()
        self.engine.pause(self.queue)
        waiter = self.waiter()
        self.engine.resume(self.queue)
        self.rings(waiter)

    def test_a_settle_that_frees_a_slot_rings(self) -> None:
        self.declare(max_in_flight=1)
        self.put_many(2)
        delivery = self.take()
        waiter = self.waiter()
        assert self.ask().blocked_by == "max_in_flight"
        waiter.clear()
        self.ack(delivery)
        self.rings(waiter)

    def test_a_settle_that_frees_a_slot_for_a_suspect_rings(self) -> None:
        self.declare(max_in_flight=2)
        self.put_suspects(2)
        self.declare(max_in_flight=1)
        delivery = self.take()
        waiter = self.waiter()
        self.ack(delivery)
        self.rings(waiter)

    def test_run_now_rings(self) -> None:
        id = self.put(delay=MINUTE)
        waiter = self.waiter()
        self.move(id, Action.RUN_NOW)
        self.rings(waiter)

    def test_a_replay_rings(self) -> None:
        id = self.put_dead()
        waiter = self.waiter()
        self.move(id, Action.REPLAY)
        self.rings(waiter)

    def test_the_first_due_time_rings(self) -> None:
        waiter = self.waiter()
        self.put(delay=MINUTE)
        self.rings(waiter)

    def test_an_earlier_due_time_rings(self) -> None:
        self.put(delay=MINUTE)
        waiter = self.waiter()
        self.put(delay=10 * SECOND)
        self.rings(waiter)

    def test_a_reschedule_to_an_earlier_time_rings(self) -> None:
        id = self.put(delay=MINUTE)
        waiter = self.waiter()
        self.move(id, Action.RESCHEDULE, delay=10 * SECOND)
        self.rings(waiter)

    def test_an_ack_that_makes_nothing_claimable_does_not_ring(self) -> None:
        delivery = self.put_and_take()
        waiter = self.waiter()
        self.ack(delivery)
        assert waiter.wait(QUIET) == frozenset()

    def test_a_ring_from_outside_rings(self) -> None:
        waiter = self.waiter()
        self.engine.ring([self.queue])
        self.rings(waiter)

    def test_another_queue_does_not_ring(self) -> None:
        waiter = self.waiter()
        self.engine.put(self.queue + "-other", [self.message()])
        assert waiter.wait(QUIET) == frozenset()

    def test_a_retry_rings_for_its_due_time_although_the_same_turn_claims(self) -> None:
        delivery = self.put_and_take()
        waiter = self.waiter()
        retry = Settlement(delivery.receipt, Verb.RETRY, delay=50)
        self.engine.turn(self.queue, [retry], [], ClaimRequest(n=1))
        assert waiter.wait(0) == {self.queue}

    def test_a_suspect_rings_whoever_may_have_it_when_the_claimer_may_not(self) -> None:
        self.put_and_take(ack_timeout=1_000)
        waiter = self.waiter()
        self.keep_in_touch("1001ms")
        waiter.clear()
        assert self.ask(suspects=False).blocked_by is BlockedBy.SUSPECT
        assert waiter.wait(0) == {self.queue}
        self.ask(suspects=False)
        assert waiter.wait(0) == frozenset()

    def test_a_policy_that_lifts_a_limit_rings(self) -> None:
        self.declare(max_in_flight=1)
        self.put_many(2)
        self.claim()
        waiter = self.waiter()
        self.declare(max_in_flight=2)
        assert waiter.wait(0) == {self.queue}

    # Whoever asked while claims were held back was not told what is due next.

    def test_a_resume_rings_for_what_is_due_later(self) -> None:
        waiters = self.three()
        self.put(delay=MINUTE)
        self.engine.pause(self.queue)
        self.hush(waiters)
        self.engine.resume(self.queue)
        self.rings(waiters[0])

    def test_the_end_of_a_pause_rings_for_what_is_due_later(self) -> None:
        waiters = self.three()
        self.put(delay=MINUTE)
        self.hush(waiters)
        self.engine.pause(self.queue, span=SECOND)
        self.hush(waiters)
        self.clock.advance("1s")
        self.engine.sweep(self.queue)
        self.rings(waiters[0])

    def test_a_settle_that_frees_a_slot_rings_for_what_is_due_later(self) -> None:
        self.declare(max_in_flight=1)
        delivery, waiters = self.put_and_take(), self.three()
        self.put(delay=MINUTE)
        self.hush(waiters)
        self.ack(delivery)
        self.rings(waiters[0])

    def test_a_policy_that_lifts_a_limit_rings_for_what_is_due_later(self) -> None:
        self.declare(max_in_flight=1)
        self.put_and_take()
        waiters = self.three()
        self.put(delay=MINUTE)
        self.hush(waiters)
        self.declare(max_in_flight=2)
        self.rings(waiters[0])

    def test_a_slot_that_is_taken_again_at_once_does_not_ring(self) -> None:
        self.declare(max_in_flight=1)
        delivery, waiters = self.put_and_take(), self.three()
        self.put(delay=MINUTE)
        self.hush(waiters)
        self.put()
        self.hush(waiters)
        turned = self.engine.turn(self.queue, [Settlement(delivery.receipt)], [], ClaimRequest(n=1))
        assert turned.claimed.deliveries
        assert waiters[0].wait(QUIET) == frozenset()

    def test_one_slot_more_among_free_ones_does_not_ring(self) -> None:
        self.declare(max_in_flight=2)
        delivery, waiters = self.put_and_take(), self.three()
        self.put(delay=MINUTE)
        self.hush(waiters)
        self.ack(delivery)
        assert waiters[0].wait(QUIET) == frozenset()


class HerdContract(ContractBase):
    """A ring wakes few of many, and an unused one is handed on."""

    def test_one_message_wakes_one_or_two_of_ten(self) -> None:
        waiters = [self.waiter() for _ in range(10)]
        self.put()
        woken = [waiter for waiter in waiters if waiter.wait(QUIET)]
        assert 1 <= len(woken) <= 2

    def test_many_messages_wake_somebody_for_each_other_put(self) -> None:
        waiters = [self.waiter() for _ in range(4)]
        for _ in range(4):
            self.put()
            woken = [waiter for waiter in waiters if waiter.wait(QUIET)]
            assert woken, "a put woke nobody although somebody waits"
            for waiter in woken:
                waiter.disarm()
                waiters.remove(waiter)
            if not waiters:
                return

    def test_an_unused_ring_is_handed_on(self) -> None:
        waiters = [self.waiter() for _ in range(2)]
        self.put()
        rung, *_ = select.select([waiter.fileno() for waiter in waiters], [], [], RING)[0]
        first, second = sorted(waiters, key=lambda waiter: waiter.fileno() != rung)
        first.disarm()
        assert second.wait(RING) == {self.queue}

    def test_an_unused_ring_for_a_suspect_is_handed_on_too(self) -> None:
        self.put_and_take()
        self.keep_in_touch("30001ms")
        waiters = [self.waiter() for _ in range(2)]
        self.engine.sweep(self.queue)
        rung, *_ = select.select([waiter.fileno() for waiter in waiters], [], [], RING)[0]
        first, second = sorted(waiters, key=lambda waiter: waiter.fileno() != rung)
        first.disarm()
        assert second.wait(RING) == {self.queue}

    def test_a_closed_waiter_hands_its_ring_on_too(self) -> None:
        waiters = [self.waiter() for _ in range(2)]
        self.put()
        rung, *_ = select.select([waiter.fileno() for waiter in waiters], [], [], RING)[0]
        first, second = sorted(waiters, key=lambda waiter: waiter.fileno() != rung)
        first.close()
        assert second.wait(RING) == {self.queue}

    def test_who_is_not_armed_is_not_rung(self) -> None:
        waiter = self.waiter()
        waiter.disarm()
        self.put()
        assert waiter.wait(QUIET) == frozenset()

    def test_who_disarms_loses_the_pending_ring(self) -> None:
        waiter = self.waiter()
        self.put()
        assert readable(waiter, RING)
        waiter.disarm()
        assert not readable(waiter)

    def test_who_arms_again_is_rung_again(self) -> None:
        waiter = self.waiter()
        waiter.disarm()
        waiter.arm()
        self.put()
        assert waiter.wait(RING) == {self.queue}


class WaiterContract(ContractBase):
    """fileno, clear, wait and ring, as selectors, loops and stopping workers use them."""

    def test_fileno_is_readable_while_a_ring_is_pending(self) -> None:
        waiter = self.waiter()
        assert not readable(waiter)
        self.put()
        assert readable(waiter, RING)
        waiter.clear()
        assert not readable(waiter)

    def test_clear_names_the_queues_that_rang(self) -> None:
        one, two, three = (f"{self.queue}-{number}" for number in range(3))
        waiter = self.waiter(one, two, three)
        for queue in (one, three):
            self.engine.put(queue, [self.message()])
        names = waiter.wait(RING)
        if len(names) < 2:
            names |= waiter.wait(RING)
        assert names == {one, three}

    def test_clear_stays_armed(self) -> None:
        waiter = self.waiter()
        for _ in range(3):
            self.put()
            assert waiter.wait(RING) == {self.queue}

    def test_clear_without_a_ring_names_nothing(self) -> None:
        assert self.waiter().clear() == frozenset()

    def test_wait_with_a_pending_ring_returns_at_once(self) -> None:
        waiter = self.waiter()
        self.put()
        assert readable(waiter, RING)
        assert waiter.wait(0) == {self.queue}

    def test_ring_wakes_from_inside(self) -> None:
        waiter = self.waiter()
        waiter.ring("stop")
        assert waiter.wait(RING) == {"stop"}

    def test_ring_without_a_name_wakes_too(self) -> None:
        waiter = self.waiter()
        waiter.ring()
        assert readable(waiter, RING)
        waiter.clear()
        assert not readable(waiter)

    def test_a_sleeping_thread_is_woken(self) -> None:
        waiter, woken = self.waiter(), []
        thread = threading.Thread(target=lambda: woken.append(waiter.wait(RING)))
        thread.start()
        self.put()
        thread.join(RING)
        assert woken == [{self.queue}]

    def test_closing_a_waiter_twice_is_fine(self) -> None:
        with self.engine.waiter([self.queue]) as waiter:
            waiter.arm()
        waiter.close()


class TopicRingContract(ContractBase):
    """Topics wake all; the topic "lifecycle" rings for every log entry of any queue."""

    def rings_nobody(self, topic: str, doing: Callable[[], object]) -> bool:
        """Whether this wakes no one who waits for the topic.

        A store may have a net that rings for topics now and then, whatever has happened. So a machine that
        stood still for a moment gets another try.
        """
        for _ in range(6):
            waiter = self.waiter(topics=[topic])
            doing()
            quiet = waiter.wait(QUIET) == frozenset()
            waiter.close()
            if quiet:
                return True
        return False

    def test_a_topic_rings_all(self) -> None:
        topic = self.queue + "-topic"
        waiters = [self.waiter(topics=[topic]) for _ in range(5)]
        self.engine.publish(topic, [b"news"])
        assert [waiter.wait(RING) for waiter in waiters] == [{topic}] * 5

    def test_queues_and_topics_ring_one_waiter(self) -> None:
        topic = self.queue + "-topic"
        waiter = self.waiter(self.queue, topics=[topic])
        self.engine.publish(topic, [b"news"])
        assert waiter.wait(RING) == {topic}
        self.put()
        assert self.queue in waiter.wait(RING)

    def test_a_topic_does_not_ring_who_waits_for_another(self) -> None:
        other = self.queue + "-other"
        assert self.rings_nobody(self.queue + "-topic", lambda: self.engine.publish(other, [b"news"]))

    def test_lifecycle_rings_for_every_log_entry(self) -> None:
        delivery = self.put_and_take()
        waiters = [self.waiter(topics=["lifecycle"]) for _ in range(2)]
        self.bury(delivery, BOOM)
        assert [waiter.wait(RING) for waiter in waiters] == [{"lifecycle"}] * 2

    def test_lifecycle_does_not_ring_for_what_is_not_logged(self) -> None:
        self.put()

        def work() -> None:
            self.put()
            self.engine.settle(self.queue, [Settlement(delivery.receipt) for delivery in self.claim(2)])

        assert self.rings_nobody("lifecycle", work)
