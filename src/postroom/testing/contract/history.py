"""The queue's log and its counters: what happened, for people to see."""

from __future__ import annotations

import pytest

from postroom.model import Action, Move, Settlement, Verb
from postroom.testing.contract.base import BOOM, HOUR, SECOND, ContractBase

COUNTERS = {
    "put", "claimed", "acked", "retried", "released", "reclaimed", "dead",
    "expired", "evicted", "cancelled", "replayed", "discarded", "purged",
}  # fmt: skip


class LogContract(ContractBase):
    """One log entry per engine call, with its count and at most 50 ids."""

    def events(self, after: str = "") -> list[str]:
        return [entry.event for entry in self.engine.log(self.queue, after=after).entries]

    def test_the_first_step_of_a_queue_is_told_too(self) -> None:
        first = self.put(failure=BOOM)
        assert [entry.ids for entry in self.log("move_to_dlq")] == [(first,)]
        second = self.put(failure=BOOM)
        assert [entry.ids for entry in self.log("move_to_dlq")] == [(first,), (second,)]

    def test_the_plain_way_of_a_message_is_not_logged(self) -> None:
        self.release(self.put_and_take())
        self.ack(self.take())
        assert self.events() == []

    def test_a_log_entry_has_queue_time_count_and_ids(self) -> None:
        id = self.put()
        self.clock.advance("1s")
        self.move(id, Action.CANCEL)
        (entry,) = self.engine.log(self.queue, after="").entries
        assert (entry.queue, entry.at, entry.event) == (self.queue, self.clock(), "cancel")
        assert (entry.count, entry.ids) == (1, (id,))

    def test_a_call_is_one_log_entry(self) -> None:
        ids = self.put_many(3)
        self.engine.settle(self.queue, [Settlement(each.receipt, Verb.RETRY) for each in self.claim(3)])
        (entry,) = self.log("retry")
        assert (entry.count, set(entry.ids)) == (3, set(ids))

    def test_a_mixed_call_is_one_log_entry_for_each_event(self) -> None:
        self.put_many(4)
        verbs = (Verb.RETRY, Verb.BURY, Verb.ACK, Verb.RETRY)
        deliveries = self.claim(4)
        settlements = [Settlement(each.receipt, verb) for each, verb in zip(deliveries, verbs, strict=True)]
        self.engine.settle(self.queue, settlements)
        assert sorted(self.events()) == ["move_to_dlq", "retry"]
        assert self.log("retry")[0].count == 2

    def test_a_last_retry_is_logged_as_a_death(self) -> None:
        self.retry(self.put_and_take(max_attempts=1), failure=BOOM)
        assert self.events() == ["move_to_dlq"]

    def test_a_stale_settle_is_not_logged(self) -> None:
        delivery = self.put_and_take()
        self.ack(delivery)
        self.retry(delivery)
        assert self.events() == []

    def test_more_than_fifty_ids_are_counted_but_not_kept(self) -> None:
        ids = self.put_many(60)
        self.engine.settle(self.queue, [Settlement(each.receipt, Verb.RETRY) for each in self.claim(60)])
        (entry,) = self.log("retry")
        assert (entry.count, len(set(entry.ids))) == (60, 50)
        assert set(entry.ids) <= set(ids)

    @pytest.mark.parametrize(
        ("action", "fields"),
        [
            (Action.CANCEL, {}),
            (Action.RESCHEDULE, {}),
            (Action.RUN_NOW, {"delay": HOUR}),
            (Action.REPLAY, {"failure": BOOM}),
            (Action.DISCARD, {"failure": BOOM}),
        ],
    )
    def test_an_operators_move_is_logged(self, action: Action, fields: dict[str, object]) -> None:
        ids = self.put_many(2, **fields)
        self.engine.move(self.queue, [Move(id=id, action=action, delay=SECOND) for id in ids])
        (entry,) = self.log(action.value)
        assert (entry.count, set(entry.ids)) == (2, set(ids))

    def test_a_refused_move_is_not_logged(self) -> None:
        self.move(self.put(), Action.DISCARD)
        assert self.events() == []

    def test_pause_and_resume_are_logged(self) -> None:
        self.engine.pause(self.queue, "upgrade")
        self.engine.resume(self.queue)
        assert self.events() == ["pause", "resume"]

    def test_a_purge_is_logged_with_its_count(self) -> None:
        self.put_many(3)
        self.engine.purge(self.queue)
        (entry,) = self.log("purge")
        assert entry.count == 3

    def test_a_log_is_read_from_now_on(self) -> None:
        self.engine.pause(self.queue)
        cursor = self.engine.log(self.queue).cursor
        self.engine.resume(self.queue)
        assert self.events(after=cursor) == ["resume"]

    def test_a_log_is_read_from_now_on_before_the_queue_exists(self) -> None:
        cursor = self.engine.log(self.queue).cursor
        self.engine.pause(self.queue)
        assert self.events(after=cursor) == ["pause"]

    def test_a_log_cursor_goes_on_where_it_was(self) -> None:
        for _ in range(3):
            self.engine.pause(self.queue)
            self.engine.resume(self.queue)
        seen, cursor = list[str](), ""
        for _ in range(3):
            log = self.engine.log(self.queue, after=cursor, limit=2)
            seen += [entry.id for entry in log.entries]
            cursor = log.cursor
        assert len(set(seen)) == len(seen) == 6
        assert self.events(after=cursor) == []

    def test_a_queue_made_again_uses_no_log_id_again(self) -> None:
        self.engine.pause(self.queue)
        before = self.engine.log(self.queue, after="")
        self.engine.drop(self.queue, force=True)
        self.clock.advance("1s")
        self.engine.pause(self.queue)
        after = self.engine.log(self.queue, after=before.cursor)
        assert [entry.event for entry in after.entries] == ["pause"]
        assert after.entries[0].id != before.entries[0].id

    def test_ids_do_not_come_back_after_a_drop(self) -> None:
        self.engine.pause(self.queue)
        cursor = self.engine.log(self.queue, after="").cursor
        self.engine.resume(self.queue)
        self.engine.drop(self.queue)
        self.clock.advance("1s")
        self.engine.pause(self.queue)
        log = self.engine.log(self.queue, after=cursor)
        assert [entry.event for entry in log.entries] == ["pause"]
        assert log.missed == 0


class CounterContract(ContractBase):
    """Counters for the hot path: all present, 0 when unused."""

    def changed(self) -> dict[str, int]:
        return {name: count for name, count in self.stats.counters.items() if count}

    def test_all_counters_are_there(self) -> None:
        self.declare()
        assert set(self.stats.counters) == COUNTERS
        assert self.changed() == {}

    def test_a_plain_way_counts_put_claimed_acked(self) -> None:
        self.put_many(3)
        for delivery in self.claim(2):
            self.ack(delivery)
        assert self.changed() == {"put": 3, "claimed": 2, "acked": 2}

    def test_a_repeated_put_is_not_counted(self) -> None:
        self.put_again(self.put())
        assert self.counter("put") == 1

    def test_retried_and_released_are_counted(self) -> None:
        self.retry(self.put_and_take())
        self.release(self.take())
        assert (self.counter("retried"), self.counter("released")) == (1, 1)

    def test_reclaimed_is_counted(self) -> None:
        self.put_and_take()
        self.run_out()
        assert (self.counter("reclaimed"), self.counter("dead")) == (1, 0)

    @pytest.mark.parametrize("by", ["bury", "retry", "run_out"])
    def test_dead_is_counted(self, by: str) -> None:
        delivery = self.put_and_take(max_attempts=1)
        if by == "run_out":
            self.run_out()
        else:
            getattr(self, by)(delivery)
        assert self.counter("dead") == 1

    def test_what_operators_do_is_counted(self) -> None:
        first, second = self.put_dead(), self.put_dead()
        self.move(first, Action.REPLAY)
        self.move(second, Action.DISCARD)
        self.move(self.put(), Action.CANCEL)
        self.engine.purge(self.queue)
        names = ("replayed", "discarded", "cancelled", "purged")
        assert [self.counter(name) for name in names] == [1, 1, 1, 1]

    def test_a_stale_settle_is_not_counted(self) -> None:
        delivery = self.put_and_take()
        self.ack(delivery)
        self.ack(delivery)
        assert self.counter("acked") == 1
