"""backlog: what waits, ready by priority, and how much of what is scheduled was tried before."""

from __future__ import annotations

from postroom.limits import MAX_BATCH, MAX_LOOKED_AT
from postroom.model import Action
from postroom.stats import Backlog
from postroom.testing.contract.base import HOUR, MINUTE, SECOND, ContractBase

_NOTHING = Backlog({}, 0)


class BacklogContract(ContractBase):
    """What `backlog` counts is what `find` would find, or it says that there is more."""

    @property
    def backlog(self) -> Backlog:
        return self.engine.backlog(self.queue)

    def levels(self) -> dict[int, int]:
        """Where all must have been seen."""
        found = self.backlog
        assert found.levels_whole
        return found.levels

    def retrying(self) -> int:
        found = self.backlog
        assert found.retrying_whole
        return found.retrying

    def put_levels(self, *levels: int) -> None:
        self.engine.put(self.queue, [self.message(priority=level) for level in levels])

    def put_retrying(self, delay: int = MINUTE, **fields: int) -> str:
        delivery = self.put_and_take(**fields)
        self.retry(delivery, delay=delay)
        return delivery.message.id

    def test_the_backlog_of_an_unknown_queue_is_empty(self) -> None:
        assert self.backlog == _NOTHING
        assert self.engine.queues([self.queue]) == []

    def test_the_backlog_of_a_queue_without_messages_is_empty(self) -> None:
        self.declare()
        assert self.backlog == _NOTHING

    def test_ready_messages_are_counted_by_priority_the_most_urgent_first(self) -> None:
        self.put_levels(0, 5, 255, 254, 5, 1, 0, 255, 255)
        assert list(self.levels().items()) == [(255, 3), (254, 1), (5, 2), (1, 1), (0, 2)]

    def test_each_of_256_levels_is_counted(self) -> None:
        self.put_levels(*range(256), *range(0, 256, 5))
        assert self.levels() == {level: 2 if level % 5 == 0 else 1 for level in range(256)}

    def test_a_level_is_counted_whenever_its_messages_were_put(self) -> None:
        self.put_levels(0, 5, 255)
        self.clock.advance("3650d")
        self.put_levels(0, 5, 255)
        assert self.levels() == {255: 2, 5: 2, 0: 2}

    def test_one_level_of_many_is_counted_whole(self) -> None:
        for _ in range(3):
            self.put_many(MAX_BATCH)
        assert self.levels() == {5: 3 * MAX_BATCH}
        self.put_levels(9, 0)
        assert self.levels() == {9: 1, 5: 3 * MAX_BATCH, 0: 1}

    def test_suspects_count_in_their_level(self) -> None:
        self.put_suspects(2)
        self.put_levels(5, 6)
        assert self.levels() == {6: 1, 5: 3}
        assert self.stats.ready == 4

    def test_suspects_alone_are_a_backlog(self) -> None:
        self.put_suspects(2)
        assert self.levels() == {5: 2}

    def test_only_what_is_ready_has_a_level(self) -> None:
        self.put_dead(priority=7)
        self.put_and_take(priority=8)
        self.put(priority=9, delay=MINUTE)
        assert self.backlog == _NOTHING
        self.put(priority=3)
        assert self.levels() == {3: 1}

    def test_what_is_claimed_and_handed_back_is_counted_again(self) -> None:
        self.put_levels(7, 5)
        delivery = self.take()
        assert self.levels() == {5: 1}
        self.release(delivery)
        assert self.levels() == {7: 1, 5: 1}
        self.ack(self.take())
        assert self.levels() == {5: 1}

    def test_with_aging_levels_mix_in_the_order_and_not_in_the_count(self) -> None:
        self.declare(aging="1s")
        for _ in range(3):
            self.put_levels(0, 5, 255)
            self.clock.advance("10m")
        assert list(self.levels().items()) == [(255, 3), (5, 3), (0, 3)]
        self.put_suspects(1)
        assert sum(self.levels().values()) == self.stats.ready

    def test_of_many_with_aging_so_many_are_counted_at_least(self) -> None:
        self.declare(aging="60s")
        put = {9: 200, 5: MAX_LOOKED_AT, 0: 100}
        for level, count in put.items():
            self.put_many(count, priority=level)
        found = self.backlog
        assert all(count <= put[level] for level, count in found.levels.items())
        assert found.levels[9] == 200  # they are the next
        assert found.levels_whole == (found.levels == put)
        assert found.levels_whole or sum(found.levels.values()) == MAX_LOOKED_AT

    def test_large_bodies_with_aging_are_counted_or_told_to_be_more(self) -> None:
        self.declare(aging="60s")
        self.put_many(3, body=bytes(700_000))
        found = self.backlog
        assert 1 <= found.levels[5] <= 3
        assert found.levels_whole == (found.levels[5] == 3)

    def test_what_waits_for_another_attempt_is_retrying(self) -> None:
        self.put(delay=MINUTE)
        assert self.retrying() == 0
        self.put_retrying()
        self.put_retrying(priority=255)
        self.put(delay=MINUTE)
        assert self.retrying() == 2
        assert self.levels() == {}

    def test_what_is_only_handed_back_for_later_is_not_retrying(self) -> None:
        self.release(self.put_and_take(), delay=MINUTE)
        assert self.retrying() == 0

    def test_a_retry_that_is_due_is_ready_and_retries_no_more(self) -> None:
        self.put_retrying(10 * SECOND, priority=9)
        self.clock.advance("10s")
        self.engine.sweep(self.queue)
        assert (self.levels(), self.retrying()) == ({9: 1}, 0)

    def test_a_retry_that_is_put_off_or_cancelled_is_counted_where_it_is(self) -> None:
        later, gone = self.put_retrying(), self.put_retrying()
        self.move(later, Action.RESCHEDULE, delay=HOUR)
        assert self.retrying() == 2
        self.move(gone, Action.CANCEL)
        assert self.retrying() == 1
        self.move(later, Action.RUN_NOW)
        assert (self.levels(), self.retrying()) == ({5: 1}, 0)

    def test_of_many_scheduled_the_first_are_looked_at(self) -> None:
        self.put_retrying(SECOND)
        self.put_many(MAX_LOOKED_AT - 1, delay=MINUTE)
        assert self.retrying() == 1
        self.put_retrying(HOUR)  # behind so many
        found = self.backlog
        assert found.retrying == (2 if found.retrying_whole else 1)

    def test_a_purge_leaves_no_backlog(self) -> None:
        self.put_retrying()
        self.put_suspects(1)
        self.put_levels(0, 9)
        self.engine.purge(self.queue)
        assert self.backlog == _NOTHING
        self.put_levels(9)
        self.put(delay=MINUTE)
        assert (self.levels(), self.retrying()) == ({9: 1}, 0)
