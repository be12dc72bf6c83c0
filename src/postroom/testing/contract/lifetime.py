"""Threads, closing, and what a store keeps for others and for later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from postroom.engine import ClaimRequest, Engine
from postroom.errors import Closed, QueueFull
from postroom.model import Action, Outcome, Settlement, State
from postroom.testing.contract.base import BOOM, HOUR, RING, ContractBase

CALLS: dict[str, Callable[[Engine, str], object]] = {
    "declare": lambda engine, queue: engine.declare(queue, engine.queues()[0].policy),
    "drop": lambda engine, queue: engine.drop(queue),
    "queues": lambda engine, queue: engine.queues(),
    "stats": lambda engine, queue: engine.stats(queue),
    "put": lambda engine, queue: engine.put(queue, []),
    "claim": lambda engine, queue: engine.claim(queue, ClaimRequest()),
    "turn": lambda engine, queue: engine.turn(queue, [], [], None),
    "settle": lambda engine, queue: engine.settle(queue, []),
    "renew": lambda engine, queue: engine.renew(queue, [], 1),
    "extend": lambda engine, queue: engine.extend(queue, []),
    "sweep": lambda engine, queue: engine.sweep(queue),
    "waiter": lambda engine, queue: engine.waiter([queue]),
    "ring": lambda engine, queue: engine.ring([queue]),
    "get": lambda engine, queue: engine.get(queue, []),
    "find": lambda engine, queue: engine.find(queue, State.READY),
    "move": lambda engine, queue: engine.move(queue, []),
    "pause": lambda engine, queue: engine.pause(queue),
    "resume": lambda engine, queue: engine.resume(queue),
    "purge": lambda engine, queue: engine.purge(queue),
    "log": lambda engine, queue: engine.log(queue),
    "publish": lambda engine, queue: engine.publish("topic", [b""]),
    "read": lambda engine, queue: engine.read("topic"),
    "topics": lambda engine, queue: engine.topics(),
    "records.get": lambda engine, queue: engine.records.get("kind", "key"),
    "records.put": lambda engine, queue: engine.records.put("kind", "key", b""),
    "records.delete": lambda engine, queue: engine.records.delete("kind", "key"),
    "records.list": lambda engine, queue: engine.records.list("kind"),
}


class CloseContract(ContractBase):
    """After close every call raises Closed; closing twice is fine."""

    @pytest.mark.parametrize("call", CALLS)
    def test_a_closed_engine_raises_closed(self, call: str) -> None:
        self.put()
        self.engine.close()
        with pytest.raises(Closed):
            CALLS[call](self.engine, self.queue)

    def test_closing_an_engine_twice_is_fine(self) -> None:
        self.engine.close()
        self.engine.close()


class ThreadContract(ContractBase):
    """An engine is thread-safe."""

    def together(self, *work: Callable[[], None]) -> None:
        """Run these at the same time; an exception in any fails the test."""
        errors: list[BaseException] = []

        def guarded(part: Callable[[], None]) -> None:
            try:
                part()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(part,)) for part in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []

    def test_four_threads_claim_each_message_once(self) -> None:
        ids = self.put_many(1_000) + self.put_many(1_000)
        claimed: list[str] = []

        def consume() -> None:
            while deliveries := self.claim(7):
                claimed.extend(delivery.message.id for delivery in deliveries)
                settlements = [Settlement(delivery.receipt) for delivery in deliveries]
                assert set(self.engine.settle(self.queue, settlements)) == {Outcome.OK}

        self.together(*[consume] * 4)
        assert sorted(claimed) == sorted(ids)
        assert (self.stats.depth, self.stats.processing) == (0, 0)

    def test_what_ran_out_comes_back_once_however_many_look_for_it(self) -> None:
        ids = self.put_many(500)
        self.claim(500, start=0)
        self.keep_in_touch("30001ms")
        swept, claimed = list[int](), list[str]()

        def sweep() -> None:
            for _ in range(10):
                swept.append(self.engine.sweep(self.queue, limit=40).reclaimed)

        def consume() -> None:
            while len(claimed) < len(ids) and (found := self.claim_ids(20)):
                claimed.extend(found)

        self.together(sweep, consume, sweep, consume)
        assert sorted(claimed) == sorted(ids)
        assert sum(swept) <= self.counter("reclaimed") == len(ids)
        assert (self.stats.depth, self.stats.processing) == (0, len(ids))

    def test_one_id_put_by_many_is_created_once(self) -> None:
        message, created = self.message(), list[bool]()
        self.together(*[lambda: created.append(self.put_again(message.id))] * 8)
        assert sorted(created) == [False] * 7 + [True]

    def test_one_receipt_settled_by_many_is_settled_once(self) -> None:
        delivery, outcomes = self.put_and_take(), list[Outcome]()
        self.together(*[lambda: outcomes.append(self.ack(delivery))] * 8)
        assert sorted(outcomes) == [Outcome.GONE] * 7 + [Outcome.OK]

    def test_capacity_holds_against_many(self) -> None:
        self.declare(capacity=10)

        def produce() -> None:
            for _ in range(10):
                try:
                    self.put()
                except QueueFull:
                    return

        self.together(*[produce] * 4)
        assert self.stats.depth == 10


class DurableContract(ContractBase):
    """A durable engine finds everything again after it was closed."""

    engine: Engine

    def reopen(self) -> None:
        if not self.engine.capabilities.durable:
            pytest.skip("the engine is not durable")
        self.engine.close()
        self.engine = self.make_engine(self.clock)

    def test_every_state_survives_a_reopening(self) -> None:
        self.declare(keep_done="1h")
        dead, processing, done = self.put_dead(), self.put_and_take(), self.put_and_take()
        self.ack(done)
        ids = [self.put(body=b"x"), self.put(delay=HOUR), processing.message.id, done.message.id, dead]
        before = self.engine.get(self.queue, ids), self.stats
        self.reopen()
        assert (self.engine.get(self.queue, ids), self.stats) == before

    def test_a_receipt_survives_a_reopening(self) -> None:
        delivery = self.put_and_take()
        self.reopen()
        assert self.ack(delivery) is Outcome.OK

    def test_policy_and_pause_survive_a_reopening(self) -> None:
        self.declare(capacity=7, rate="5/m")
        self.engine.pause(self.queue, "upgrade")
        before = self.info
        self.reopen()
        assert self.info == before

    def test_order_goes_on_after_a_reopening(self) -> None:
        before = self.put_many(50)
        self.reopen()
        after = self.put_many(50)
        assert self.claim_ids() == before + after

    def test_remembered_ids_and_unique_keys_survive_a_reopening(self) -> None:
        delivery = self.put_and_take(remember=HOUR)
        self.ack(delivery)
        unique = self.put(unique_key="user:4")
        self.reopen()
        assert not self.put_again(delivery.message.id)
        assert self.put(unique_key="user:4") == unique

    def test_records_topics_and_log_survive_a_reopening(self) -> None:
        version = self.engine.records.put("kind", "key", b"value")
        self.engine.publish("topic", [b"news"])
        self.engine.pause(self.queue)
        self.reopen()
        assert self.engine.records.get("kind", "key") == ("key", b"value", version, None)
        assert [entry.data for entry in self.engine.read("topic", after="").entries] == [b"news"]
        assert len(self.log("pause")) == 1


class SharedContract(ContractBase):
    """Several openings of a shared store work on the same queues."""

    @pytest.fixture(name="other")
    def _other(self, engine: Engine) -> Iterator[Engine]:
        if not engine.capabilities.shared:
            pytest.skip("the engine is not shared")
        other = self.make_engine(self.clock)
        yield other
        other.close()

    def test_what_one_puts_the_other_claims_and_settles(self, other: Engine) -> None:
        id = self.put()
        (delivery,) = other.claim(self.queue, ClaimRequest()).deliveries
        assert delivery.message.id == id
        assert self.claim() == []
        assert self.ack(delivery) is Outcome.OK

    def test_a_put_in_one_rings_in_the_other(self, other: Engine) -> None:
        with other.waiter([self.queue]) as waiter:
            waiter.arm()
            self.put()
            assert waiter.wait(RING) == {self.queue}

    def test_a_topic_rings_in_the_other(self, other: Engine) -> None:
        with other.waiter([], ["topic"]) as waiter:
            waiter.arm()
            self.engine.publish("topic", [b"news"])
            assert waiter.wait(RING) == {"topic"}

    def test_what_an_operator_does_in_one_counts_in_the_other(self, other: Engine) -> None:
        id = self.put(failure=BOOM)
        assert self.move(id, Action.DISCARD).ok
        self.engine.pause(self.queue)
        assert other.get(self.queue, [id]) == [None]
        assert other.claim(self.queue, ClaimRequest()).blocked_by == "pause"

    def test_closing_one_does_not_close_the_other(self, other: Engine) -> None:
        other.close()
        assert self.state(self.put()) is State.READY
