"""put: all or nothing, idempotent by id, unique by key."""

from __future__ import annotations

import pytest

from postroom.errors import InvalidInput
from postroom.model import Action, Attempt, Failure, Move, Past, Put, State
from postroom.policy import fingerprint
from postroom.testing.contract.base import BOOM, HOUR, MINUTE, SECOND, ContractBase


class PutContract(ContractBase):
    """A put message is safe, whole, and in the state that its due time says."""

    def test_a_put_message_is_ready(self) -> None:
        assert self.state(self.put()) is State.READY

    def test_a_message_due_later_is_scheduled(self) -> None:
        assert self.state(self.put(delay=1)) is State.SCHEDULED

    def test_a_message_due_now_or_earlier_is_ready(self) -> None:
        assert self.state(self.put(due=self.clock())) is State.READY
        assert self.state(self.put(due=self.clock() - HOUR)) is State.READY

    def test_delay_counts_from_the_engines_now(self) -> None:
        assert self.entry(self.put(delay=5 * SECOND)).due == self.clock() + 5 * SECOND

    def test_ttl_counts_from_the_engines_now(self) -> None:
        assert self.entry(self.put(ttl=5 * SECOND)).message.expires == self.clock() + 5 * SECOND

    def test_put_time_is_the_engines(self) -> None:
        self.clock.advance("5s")
        assert self.entry(self.put()).message.put_at == self.clock()

    def test_every_field_of_a_message_comes_back(self) -> None:
        fields = {
            "body": bytes(range(256)),
            "kind": "emails.send",
            "content_type": "application/x-özgür",
            "headers": {"trace": "ünïcode ☃", "empty": ""},
            "priority": 200,
            "ack_timeout": 7 * SECOND,
            "max_attempts": 9,
            "correlation_id": "order:17",
            "unique_key": "user:4",
            "remember": 9 * SECOND,
        }
        message = self.put_and_take(**fields).message
        assert {name: getattr(message, name) for name in fields} == fields
        assert message.queue == self.queue

    def test_an_empty_body_comes_back_empty(self) -> None:
        assert self.put_and_take(body=b"").message.body == b""

    def test_a_body_of_a_megabyte_comes_back_whole(self) -> None:
        body = bytes(range(256)) * 4_096
        assert self.put_and_take(body=body).message.body == body

    def test_a_thousand_messages_fit_into_one_call(self) -> None:
        ids = self.put_many(1_000)
        assert self.stats.ready == 1_000
        assert self.claim_ids() == ids

    def test_no_messages_are_no_change(self) -> None:
        assert self.engine.put(self.queue, []).puts == []
        assert self.stats.depth == 0

    def test_put_results_are_in_the_order_of_the_messages(self) -> None:
        messages = [self.message() for _ in range(5)]
        assert self.engine.put(self.queue, messages).puts == [Put(message.id) for message in messages]

    def test_depth_counts_ready_and_scheduled_but_not_processing(self) -> None:
        self.declare(warn_depth=10)
        self.put_and_take()
        self.put(delay=SECOND)
        assert self.engine.put(self.queue, [self.message()]).depth == 2
        assert self.engine.put(self.queue, [self.message(delay=SECOND)]).depth == 3

    def test_depth_is_not_told_where_no_policy_asks_for_it(self) -> None:
        assert self.engine.put(self.queue, [self.message()]).depth is None
        assert self.engine.put(self.queue, [self.message(delay=SECOND), self.message()]).depth is None

    def test_the_same_id_in_two_queues_is_two_messages(self) -> None:
        message = self.message()
        for queue in (self.queue, self.queue + "-other"):
            assert self.engine.put(queue, [message]).puts[0].created
        self.ack(self.take())
        assert self.engine.get(self.queue + "-other", [message.id])[0] is not None


class IdempotenceContract(ContractBase):
    """Promise 2: put is idempotent by id while the message exists, and for `remember` afterwards."""

    def test_putting_an_id_again_creates_nothing(self) -> None:
        id = self.put()
        assert not self.put_again(id)
        assert self.stats.depth == 1

    def test_the_same_id_twice_in_one_call_is_one_message(self) -> None:
        message = self.message()
        puts = self.engine.put(self.queue, [message, message]).puts
        assert puts == [Put(message.id, created=True), Put(message.id, created=False)]
        assert self.stats.depth == 1

    def test_a_repeated_put_leaves_the_first_message_as_it_was(self) -> None:
        id = self.put(body=b"first")
        self.put_again(id, body=b"second", priority=9, delay=HOUR)
        assert self.take().message.body == b"first"

    def test_an_id_that_is_scheduled_exists(self) -> None:
        assert not self.put_again(self.put(delay=SECOND))

    def test_an_id_that_is_processing_exists(self) -> None:
        assert not self.put_again(self.put_and_take().message.id)

    def test_an_id_that_is_dead_exists(self) -> None:
        assert not self.put_again(self.put_dead())

    def test_an_acked_id_is_forgotten_by_default(self) -> None:
        delivery = self.put_and_take()
        self.ack(delivery)
        assert self.put_again(delivery.message.id)

    @pytest.mark.parametrize("by", ["message", "policy"])
    def test_an_acked_id_is_remembered_that_long_after_it_is_gone(self, by: str) -> None:
        if by == "policy":
            self.declare(dedupe_window="10s")
        delivery = self.put_and_take(remember=None if by == "policy" else 10 * SECOND)
        self.clock.advance("8s")
        self.ack(delivery)
        self.clock.advance("9999ms")
        assert not self.put_again(delivery.message.id)
        self.clock.advance("2ms")
        assert self.put_again(delivery.message.id)

    def test_a_remembered_id_is_forgotten_although_sweeps_came_by(self) -> None:
        delivery = self.put_and_take(remember=10 * SECOND)
        self.ack(delivery)
        self.engine.sweep(self.queue)
        assert not self.put_again(delivery.message.id)
        self.clock.advance("10001ms")
        self.engine.sweep(self.queue)
        assert self.put_again(delivery.message.id)

    def test_the_messages_own_remember_wins_over_the_policy(self) -> None:
        self.declare(dedupe_window="10s")
        delivery = self.put_and_take(remember=0)
        self.ack(delivery)
        assert self.put_again(delivery.message.id)

    def test_a_remembered_id_is_neither_there_nor_counted(self) -> None:
        delivery = self.put_and_take(remember=10 * SECOND)
        self.ack(delivery)
        assert self.state(delivery.message.id) is None
        assert self.stats.depth + self.stats.processing + self.stats.dead == 0

    def test_a_cancelled_id_is_remembered_too(self) -> None:
        id = self.put(delay=MINUTE, remember=10 * SECOND)
        self.move(id, Action.CANCEL)
        assert not self.put_again(id)

    def test_an_id_that_expired_and_was_dropped_is_remembered_too(self) -> None:
        self.declare(on_expire="drop")
        id = self.put(ttl=SECOND, remember=10 * SECOND)
        self.clock.advance("1001ms")
        self.engine.sweep(self.queue)
        assert not self.put_again(id)

    def test_a_finished_message_that_is_kept_still_exists(self) -> None:
        self.declare(keep_done="10s")
        delivery = self.put_and_take()
        self.ack(delivery)
        assert not self.put_again(delivery.message.id)


class UniqueKeyContract(ContractBase):
    """At most one waiting or processing message per unique_key; a second put names the first."""

    def put_key(self, **fields: object) -> Put:
        return self.engine.put(self.queue, [self.message(unique_key="user:4", **fields)]).puts[0]

    def test_a_second_put_of_a_unique_key_returns_the_first_id(self) -> None:
        first = self.put_key()
        assert self.put_key() == Put(first.id, created=False)
        assert self.stats.depth == 1

    def test_a_unique_key_twice_in_one_call_is_one_message(self) -> None:
        messages = [self.message(unique_key="user:4") for _ in range(2)]
        first, second = self.engine.put(self.queue, messages).puts
        assert second == Put(first.id, created=False)

    def test_a_scheduled_message_holds_its_key(self) -> None:
        first = self.put_key(delay=MINUTE)
        assert self.put_key() == Put(first.id, created=False)

    def test_a_processing_message_holds_its_key(self) -> None:
        first = self.put_key()
        self.take()
        assert self.put_key() == Put(first.id, created=False)

    def test_a_retried_message_holds_its_key(self) -> None:
        first = self.put_key()
        self.retry(self.take(), delay=MINUTE)
        assert self.put_key() == Put(first.id, created=False)

    def test_an_acked_message_frees_its_key(self) -> None:
        self.put_key(remember=HOUR)
        self.ack(self.take())
        assert self.put_key().created

    def test_a_kept_finished_message_frees_its_key(self) -> None:
        self.declare(keep_done="1h")
        self.put_key()
        self.ack(self.take())
        assert self.put_key().created

    def test_a_dead_message_frees_its_key(self) -> None:
        self.put_key()
        self.bury(self.take())
        assert self.put_key().created

    def test_a_message_that_ran_out_of_attempts_frees_its_key(self) -> None:
        self.put_key(max_attempts=1)
        self.take()
        self.run_out()
        assert self.put_key().created

    def test_a_cancelled_message_frees_its_key(self) -> None:
        self.move(self.put_key().id, Action.CANCEL)
        assert self.put_key().created

    def test_a_purged_message_frees_its_key(self) -> None:
        self.put_key()
        self.engine.purge(self.queue)
        assert self.put_key().created

    @pytest.mark.parametrize("on_expire", ["dead", "drop"])
    def test_an_expired_message_frees_its_key(self, on_expire: str) -> None:
        self.declare(on_expire=on_expire)
        self.put_key(ttl=SECOND)
        self.clock.advance("1001ms")
        self.engine.sweep(self.queue)
        assert self.put_key().created

    def test_unique_keys_of_two_queues_do_not_meet(self) -> None:
        self.put_key()
        other = self.engine.put(self.queue + "-other", [self.message(unique_key="user:4")])
        assert other.puts[0].created

    def test_different_unique_keys_do_not_meet(self) -> None:
        self.put_key()
        assert self.engine.put(self.queue, [self.message(unique_key="user:5")]).puts[0].created


class DeadOnArrivalContract(ContractBase):
    """A put with a failure keeps work that failed where no lease was held."""

    def test_a_put_with_a_failure_is_a_dead_letter_at_once(self) -> None:
        id = self.put(failure=BOOM)
        assert self.state(id) is State.DEAD
        assert self.claim_ids() == []

    def test_the_failure_of_a_put_gets_the_engines_time_and_a_fingerprint(self) -> None:
        self.clock.advance("1h")
        failure = self.entry(
            self.put(kind="mail", failure=Failure(type="E", text="x 1", failed_at=5))
        ).failure
        assert failure is not None
        assert failure.failed_at == self.clock()
        assert failure.fingerprint == fingerprint("mail", failure)

    def test_a_put_with_a_failure_is_put_once_like_any_other(self) -> None:
        id = self.put(failure=BOOM)
        assert not self.put_again(id, failure=BOOM)
        assert self.stats.dead == 1

    def test_a_dead_letter_may_have_a_past(self) -> None:
        began = self.clock()
        self.clock.advance("1h")
        attempts = tuple(
            Attempt(consumer=f"w{n}", started_at=began + n, ended_at=began + n + 1, error=f"E: {n}")
            for n in range(25)
        )
        past = Past(put_at=began, attempt=25, attempts=attempts)
        entry = self.entry(self.put(failure=BOOM, past=past, kind="mail", headers={"a": "b"}, body=b"12"))
        assert (entry.message.put_at, entry.due, entry.attempt) == (began, began, 25)
        assert entry.attempts == attempts[-20:]
        assert (entry.failed_at, entry.message.body, entry.message.headers) == (
            self.clock(), b"12", {"a": "b"},
        )  # fmt: skip
        assert self.entry(self.put(failure=BOOM)).message.put_at == self.clock()

    def test_a_past_without_attempts_or_in_the_time_to_come(self) -> None:
        untried = self.entry(self.put(failure=BOOM, past=Past(put_at=self.clock() + 60_000)))
        assert (untried.message.put_at, untried.attempt, untried.attempts) == (self.clock(), 0, ())
        unknown = self.entry(self.put(failure=BOOM, past=Past(put_at=1, attempt=3)))
        assert (unknown.message.put_at, unknown.attempt, unknown.attempts) == (1, 3, ())

    def test_a_replay_of_a_dead_letter_with_a_past_begins_anew(self) -> None:
        tried = Attempt(consumer="w", started_at=1, ended_at=2, error="E")
        id = self.put(failure=BOOM, past=Past(put_at=1, attempt=1, attempts=(tried,)))
        (moved,) = self.engine.move(self.queue, [Move(id=id, action=Action.REPLAY)])
        assert moved.replayed_as is not None
        again = self.entry(moved.replayed_as)
        assert (again.state, again.attempt, again.attempts) == (State.READY, 0, ())
        assert again.message.put_at == self.clock()

    def test_only_a_dead_letter_has_a_past(self) -> None:
        with pytest.raises(InvalidInput, match="past"):
            self.put(past=Past(put_at=1))
        with pytest.raises(InvalidInput, match="attempt"):
            Past(put_at=1, attempt=0, attempts=(Attempt(consumer="", started_at=1, ended_at=1, error=""),))

    def test_a_put_with_a_failure_does_not_count_against_capacity(self) -> None:
        self.declare(capacity=1)
        self.put()
        assert self.state(self.put(failure=BOOM)) is State.DEAD


class JoinContract(ContractBase):
    """A put joins the caller's transaction only where the engine says that it can."""

    def test_what_is_no_connection_is_refused(self) -> None:
        with pytest.raises(InvalidInput):
            self.engine.put_within(object(), self.queue, [self.message()], self.policy)
        assert self.engine.queues() == []
