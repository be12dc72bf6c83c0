"""declare, drop, queues and stats: queues as such."""

from __future__ import annotations

import json

import pytest

from postroom.errors import Conflict
from postroom.model import Outcome
from postroom.policy import Policy
from postroom.stats import QueueStats
from postroom.testing.contract.base import BOOM, HOUR, MINUTE, ContractBase


class QueuesContract(ContractBase):
    """A queue exists from its first put, declare or pause; every other verb sees an empty one."""

    def exists(self) -> bool:
        return self.queue in [info.name for info in self.engine.queues()]

    def test_a_put_makes_a_queue(self) -> None:
        self.put()
        assert self.exists()

    def test_declare_makes_a_queue(self) -> None:
        self.declare()
        assert self.exists()

    def test_pause_makes_a_queue(self) -> None:
        self.engine.pause(self.queue)
        assert self.exists()

    def test_no_other_verb_makes_a_queue(self) -> None:
        id = self.message().id
        self.claim()
        self.touch()
        self.engine.sweep(self.queue)
        self.engine.get(self.queue, [id])
        self.engine.resume(self.queue)
        self.engine.purge(self.queue)
        self.engine.log(self.queue)
        assert self.stats.depth == 0
        assert not self.exists()

    def test_queues_are_listed_by_name(self) -> None:
        names = [self.queue + suffix for suffix in ("-c", "-a", "-b")]
        for name in names:
            self.engine.declare(name, Policy())
        listed = [info.name for info in self.engine.queues()]
        assert listed == sorted(listed)
        assert set(names) <= set(listed)

    def test_only_the_named_queues_that_exist(self) -> None:
        self.declare()
        self.engine.declare(self.queue + "-other", Policy())
        infos = self.engine.queues([self.queue, "no such queue"])
        assert [info.name for info in infos] == [self.queue]

    def test_a_policy_comes_back_as_it_was_declared(self) -> None:
        policy = self.declare(
            lease="9s", ack_timeout=None, retries=4, backoff="3^n * 2s", backoff_cap="5m", jitter=False,
            labels={"normal": 3, "vip": 200}, aging="1m", capacity=10, warn_depth=5, rate="7/m",
            max_in_flight=3, on_expire="drop", sla_p95="2s", dead_letter="dlq_fast", dead_retention="9d",
            dead_limit=7, dedupe_window="1h", keep_done="2h", suspect_after=2,
        )  # fmt: skip
        assert self.info.policy == policy

    def test_without_a_declare_the_policy_is_the_default(self) -> None:
        self.put()
        assert self.info.policy == Policy()


class DeclareContract(ContractBase):
    """declare gives a queue its policy; what is already in it stays."""

    def test_declare_keeps_what_is_in_the_queue(self) -> None:
        id = self.put()
        self.declare(capacity=5)
        assert self.claim_ids() == [id]

    def test_the_new_policy_counts_at_once(self) -> None:
        self.put_many(3)
        self.declare(max_in_flight=1)
        assert len(self.claim(3)) == 1

    def test_declaring_the_same_again_is_fine(self) -> None:
        self.declare(aging="60s")
        self.put()
        self.declare(aging="60s")
        assert self.stats.ready == 1

    @pytest.mark.parametrize("state", ["ready", "scheduled", "processing"])
    def test_aging_does_not_change_while_anything_is_there(self, state: str) -> None:
        self.put(delay=HOUR if state == "scheduled" else 0)
        if state == "processing":
            self.claim()
        with pytest.raises(Conflict):
            self.declare(aging="60s", capacity=5)
        assert self.info.policy == Policy()

    def test_aging_may_change_when_nothing_waits(self) -> None:
        self.ack(self.put_and_take())
        self.put_dead()
        self.declare(aging="60s")
        assert self.info.policy.aging == MINUTE

    def test_a_declare_keeps_the_pause(self) -> None:
        self.engine.pause(self.queue, "upgrade")
        self.declare(capacity=5)
        assert self.info.paused


class DropContract(ContractBase):
    """Promise 7: drop refuses while anything is in the queue, unless forced, and then says so."""

    def fill(self, state: str) -> None:
        self.put(delay=HOUR if state == "scheduled" else 0, failure=BOOM if state == "dead" else None)
        if state == "processing":
            self.claim()

    def test_drop_removes_an_empty_queue(self) -> None:
        self.declare()
        assert self.engine.drop(self.queue) == 0
        assert self.engine.queues([self.queue]) == []

    def test_an_unknown_queue_is_nothing_to_drop(self) -> None:
        assert self.engine.drop(self.queue) == 0

    @pytest.mark.parametrize("state", ["ready", "scheduled", "processing", "dead"])
    def test_drop_refuses_while_anything_is_in_the_queue(self, state: str) -> None:
        self.fill(state)
        before = self.stats
        with pytest.raises(Conflict):
            self.engine.drop(self.queue)
        assert self.stats == before

    @pytest.mark.parametrize("state", ["ready", "scheduled", "processing", "dead"])
    def test_a_forced_drop_removes_everything_and_says_how_many(self, state: str) -> None:
        self.fill(state)
        self.put()
        assert self.engine.drop(self.queue, force=True) == 2
        assert self.engine.queues([self.queue]) == []

    def test_a_forced_drop_is_announced(self) -> None:
        cursor = self.engine.read("audit").cursor
        self.put()
        self.engine.drop(self.queue, force=True, by="ada")
        self.put()
        self.engine.drop(self.queue, force=True, by="ada", why="ticket 7")
        plain, told = (json.loads(each.data) for each in self.engine.read("audit", after=cursor).entries)
        assert plain == {"event": "drop", "queue": self.queue, "count": 1, "by": "ada"}
        assert told == plain | {"info": {"reason": "ticket 7"}}

    def test_a_drop_of_nothing_is_not_announced(self) -> None:
        cursor = self.engine.read("audit").cursor
        self.declare()
        self.engine.drop(self.queue, force=True, by="ada")
        assert self.engine.read("audit", after=cursor).entries == []

    def test_receipts_of_a_dropped_queue_are_gone(self) -> None:
        delivery = self.put_and_take()
        self.engine.drop(self.queue, force=True)
        assert self.ack(delivery) is Outcome.GONE
        assert self.renew(delivery) is Outcome.GONE

    def test_a_queue_of_the_same_name_starts_afresh(self) -> None:
        self.declare(capacity=1)
        id = self.put(remember=HOUR, unique_key="user:4")
        self.engine.pause(self.queue)
        self.engine.drop(self.queue, force=True)
        assert self.put_again(id, unique_key="user:4")
        assert (self.stats.paused, self.stats.counters["put"], self.info.policy) == (False, 1, Policy())

    def test_finished_messages_are_no_reason_to_refuse_a_drop(self) -> None:
        self.declare(keep_done="1h", dedupe_window="1h")
        self.ack(self.put_and_take())
        assert self.engine.drop(self.queue) == 0


class StatsContract(ContractBase):
    """stats says how a queue stands, from counters."""

    def test_an_unknown_queue_is_all_zero(self) -> None:
        stats = self.stats
        assert not any(stats.counters.values())
        assert stats == QueueStats(queue=self.queue, counters=stats.counters)

    def test_memory_is_told_in_bytes_or_not_at_all(self) -> None:
        memory = self.engine.memory()
        assert memory is None or (memory.used > 0 and (memory.maxmemory is None or memory.maxmemory > 0))

    def test_stats_count_every_state(self) -> None:
        self.put_dead()
        self.put_and_take()
        self.put_many(2)
        self.put_many(3, delay=HOUR)
        stats = self.stats
        assert (stats.ready, stats.scheduled, stats.processing, stats.dead) == (2, 3, 1, 1)
        assert stats.depth == 5

    def test_oldest_is_the_age_of_the_oldest_ready_message(self) -> None:
        self.put(priority=3)
        self.clock.advance("5s")
        self.put(priority=9)
        self.clock.advance("2s")
        assert self.stats.oldest == 7_000

    def test_an_empty_queue_has_no_oldest(self) -> None:
        self.put_and_take()
        self.clock.advance("5s")
        assert self.stats.oldest == 0
