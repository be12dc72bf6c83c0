"""Expiry and eviction: nothing is dropped silently."""

from __future__ import annotations

import pytest

from postroom.errors import InvalidInput
from postroom.model import Outcome, Settlement, State
from postroom.testing.contract.base import BOOM, MINUTE, SECOND, ContractBase


class ExpiryContract(ContractBase):
    """Promise 5: a claim never returns an expired message; it is dead or dropped, and counted."""

    def test_a_message_is_claimable_until_it_expires(self) -> None:
        id = self.put(ttl=SECOND)
        self.clock.advance("999ms")
        assert self.claim_ids() == [id]

    def test_a_message_is_not_claimable_once_it_expired(self) -> None:
        self.put(ttl=SECOND)
        self.clock.advance("1s")
        assert self.claim_ids() == []

    def test_an_expiry_instant_is_like_a_ttl(self) -> None:
        self.put(expires=self.clock() + SECOND)
        self.clock.advance("1s")
        assert self.claim_ids() == []

    def test_expired_messages_do_not_stand_in_the_way(self) -> None:
        self.put_many(500, ttl=SECOND, priority=9)
        id = self.put()
        self.clock.advance("2s")
        assert [found for _ in range(10) for found in self.claim_ids(1)] == [id]

    def test_a_scheduled_message_expires_too(self) -> None:
        id = self.put(delay=10 * SECOND, ttl=20 * SECOND)
        self.clock.advance("21s")
        assert self.claim_ids() == []
        self.engine.sweep(self.queue)
        assert self.state(id) is State.DEAD

    def test_an_expired_message_is_a_dead_letter_by_default(self) -> None:
        id = self.put(ttl=SECOND)
        self.clock.advance("2s")
        assert self.engine.sweep(self.queue).expired == 1
        entry = self.entry(id)
        assert (entry.state, entry.failed_at) == (State.DEAD, self.clock())
        assert (entry.last_error or "").startswith("Expired")

    def test_an_expired_message_is_dropped_if_the_policy_says_so(self) -> None:
        self.declare(on_expire="drop")
        id = self.put(ttl=SECOND)
        self.clock.advance("2s")
        assert self.engine.sweep(self.queue).expired == 1
        assert self.state(id) is None
        assert (self.stats.ready, self.stats.dead) == (0, 0)

    @pytest.mark.parametrize("on_expire", ["dead", "drop"])
    def test_expiry_is_counted_and_announced(self, on_expire: str) -> None:
        self.declare(on_expire=on_expire)
        ids = self.put_many(3, ttl=SECOND)
        self.clock.advance("2s")
        self.engine.sweep(self.queue)
        assert self.counter("expired") == 3
        (entry,) = self.log("expire")
        assert (entry.count, set(entry.ids)) == (3, set(ids))

    def test_what_a_claim_finds_expired_is_counted_too(self) -> None:
        self.put_many(3, ttl=SECOND)
        self.clock.advance("2s")
        self.claim(10)
        self.engine.sweep(self.queue)
        assert self.counter("expired") == 3
        assert sum(entry.count for entry in self.log("expire")) == 3

    def test_sweeping_expired_messages_is_bounded(self) -> None:
        self.put_many(5, ttl=SECOND)
        self.clock.advance("2s")
        swept = [self.engine.sweep(self.queue, limit=2) for _ in range(3)]
        assert [sweep.expired for sweep in swept] == [2, 2, 1]
        assert [sweep.full for sweep in swept] == [True, True, False]

    def test_expiry_leaves_a_processing_message_alone(self) -> None:
        delivery = self.put_and_take(ttl=SECOND)
        self.clock.advance("2s")
        assert self.engine.sweep(self.queue).expired == 0
        assert self.renew(delivery) is Outcome.OK
        assert self.ack(delivery) is Outcome.OK

    @pytest.mark.parametrize("by", ["release", "retry", "reclaim"])
    def test_a_processing_message_is_expired_once_it_comes_back(self, by: str) -> None:
        delivery = self.put_and_take(ttl=SECOND)
        self.keep_in_touch("30001ms")
        if by != "reclaim":
            assert getattr(self, by)(delivery) is Outcome.OK
        assert self.claim() == []
        self.engine.sweep(self.queue)
        assert self.state(delivery.message.id) is State.DEAD
        assert self.counter("expired") == 1

    @pytest.mark.parametrize("fields", [{"delay": 5_000, "ttl": 5_000}, {"delay": 5_000, "ttl": 4_000}])
    def test_an_expiry_not_after_the_due_time_is_refused(self, fields: dict[str, int]) -> None:
        with pytest.raises(InvalidInput):
            self.put(**fields)
        assert self.stats.depth == 0

    @pytest.mark.parametrize("ago", [0, 1, MINUTE])
    def test_an_expiry_not_after_now_is_refused(self, ago: int) -> None:
        with pytest.raises(InvalidInput):
            self.put(expires=self.clock() - ago)
        assert self.stats.depth == 0

    def test_an_expiry_that_is_refused_refuses_the_whole_call(self) -> None:
        with pytest.raises(InvalidInput):
            self.engine.put(self.queue, [self.message(), self.message(expires=self.clock())])
        assert self.stats.depth == 0

    def test_one_claim_expires_a_bounded_number(self) -> None:
        for _ in range(3):
            self.put_many(1_000, ttl=SECOND)
        self.clock.advance("2s")
        assert self.claim() == []
        assert 0 < self.counter("expired") <= 2_000


class EvictionContract(ContractBase):
    """Promise 5: dead letters beyond their retention are counted and announced."""

    def test_beyond_the_limit_the_oldest_dead_letters_go(self) -> None:
        self.declare(dead_limit=3)
        ids = []
        for _ in range(5):
            ids.append(self.put_dead())
            self.clock.advance("1s")
        self.engine.sweep(self.queue)
        assert self.found(State.DEAD) == ids[2:]
        assert self.stats.dead == 3

    def test_after_the_retention_dead_letters_go(self) -> None:
        self.declare(dead_retention="1h")
        old = self.put_dead()
        self.clock.advance("30m")
        young = self.put_dead()
        self.clock.advance("30m")
        self.clock.advance("1s")
        self.engine.sweep(self.queue)
        assert self.found(State.DEAD) == [young]
        assert self.state(old) is None

    def test_before_the_retention_ends_dead_letters_stay(self) -> None:
        self.declare(dead_retention="1h")
        id = self.put_dead()
        self.clock.advance("3599s")
        assert self.engine.sweep(self.queue).evicted == 0
        assert self.state(id) is State.DEAD

    def test_without_limits_dead_letters_stay(self) -> None:
        self.declare(dead_limit=None)
        id = self.put_dead()
        self.clock.advance("3650d")
        self.engine.sweep(self.queue)
        assert self.state(id) is State.DEAD

    @pytest.mark.parametrize("settings", [{"dead_limit": 1}, {"dead_retention": "1s"}])
    def test_eviction_is_counted_and_announced(self, settings: dict[str, object]) -> None:
        self.declare(**settings)
        first, second = self.put_dead(), self.put_dead()
        self.clock.advance("1s" if "dead_limit" in settings else "2s")
        self.engine.sweep(self.queue)
        gone = {id for id in (first, second) if self.state(id) is None}
        assert self.counter("evicted") == len(gone) > 0
        assert {id for entry in self.log("evict") for id in entry.ids} == gone

    def test_a_sweep_evicts_at_most_its_limit(self) -> None:
        self.declare(dead_retention="1s")
        self.engine.put(self.queue, [self.message(failure=BOOM) for _ in range(5)])
        self.clock.advance("2s")
        swept = [self.engine.sweep(self.queue, limit=2) for _ in range(3)]
        assert [sweep.evicted for sweep in swept] == [2, 2, 1]
        assert [sweep.full for sweep in swept] == [True, True, False]

    def test_an_evicted_dead_letter_is_no_longer_found(self) -> None:
        self.declare(dead_retention="1s")
        self.put_dead(correlation_id="task-1")
        self.clock.advance("2s")
        self.engine.sweep(self.queue)
        assert self.found(State.DEAD, correlation_id="task-1") == []


class KeepDoneContract(ContractBase):
    """`keep_done` keeps finished messages for a while; by default they are gone at once."""

    def test_a_finished_message_can_be_looked_at(self) -> None:
        self.declare(keep_done="10s")
        delivery = self.put_and_take(body=b"looked at")
        self.ack(delivery)
        entry = self.entry(delivery.message.id)
        assert (entry.state, entry.message.body) == (State.DONE, b"looked at")

    def test_finished_messages_are_found_by_their_end(self) -> None:
        self.declare(keep_done="10s")
        self.put_many(3)
        deliveries = self.claim(3)
        for delivery in reversed(deliveries):
            self.clock.advance("1s")
            self.ack(delivery)
        assert self.found(State.DONE, limit=2) == [delivery.message.id for delivery in reversed(deliveries)]

    def test_a_finished_message_is_gone_after_keep_done(self) -> None:
        self.declare(keep_done="10s")
        delivery = self.put_and_take()
        self.ack(delivery)
        self.clock.advance("10001ms")
        self.engine.sweep(self.queue)
        assert self.state(delivery.message.id) is None
        assert self.found(State.DONE) == []

    def test_by_default_no_finished_message_is_kept(self) -> None:
        self.ack(self.put_and_take())
        assert self.found(State.DONE) == []

    def test_a_finished_message_neither_waits_nor_works(self) -> None:
        self.declare(keep_done="10s", capacity=1)
        self.ack(self.put_and_take())
        assert (self.stats.depth, self.stats.processing, self.stats.dead) == (0, 0, 0)
        assert self.state(self.put()) is State.READY

    def test_an_id_can_be_put_again_once_its_time_is_over_however_many_there_were(self) -> None:
        self.declare(keep_done="1s")
        for _ in range(2):
            self.put_many(1_000)
        done = [self.claim(1_000), self.claim(1_000)]
        for deliveries in done:
            self.engine.settle(self.queue, [Settlement(delivery.receipt) for delivery in deliveries])
        self.clock.advance("5s")
        assert self.put_again(done[-1][-1].message.id)
