"""An operator's verbs: cancel, reschedule, run now, replay, discard, pause, purge."""

from __future__ import annotations

import pytest

from postroom.errors import InvalidInput, QueueFull
from postroom.ids import replay_id
from postroom.limits import BINARY
from postroom.model import EXPECTED, Action, BlockedBy, Move, Moved, Outcome, State
from postroom.testing.contract.base import BOOM, HOUR, MINUTE, RING, SECOND, ContractBase


class MoveContract(ContractBase):
    """Each move checks the state it starts from, atomically, and names it when it is the wrong one."""

    def put_in(self, state: State) -> str:
        """A message in this state."""
        match state:
            case State.READY:
                return self.put()
            case State.SCHEDULED:
                return self.put(delay=HOUR)
            case State.PROCESSING:
                return self.put_and_take().message.id
            case State.DEAD:
                return self.put_dead()
            case State.DONE:
                delivery = self.put_and_take()
                self.ack(delivery)
                return delivery.message.id

    @pytest.mark.parametrize("action", list(Action))
    @pytest.mark.parametrize("state", list(State))
    def test_a_move_starts_only_from_its_states(self, action: Action, state: State) -> None:
        self.declare(keep_done="1h")
        id = self.put_in(state)
        before = self.entry(id)
        moved = self.move(id, action, delay=MINUTE, replayed_as=self.message().id)
        assert moved.ok == (state in EXPECTED[action])
        assert moved.state is state
        if not moved.ok:
            assert moved.reason
            assert self.entry(id) == before

    @pytest.mark.parametrize("action", list(Action))
    def test_a_message_that_does_not_exist_cannot_be_moved(self, action: Action) -> None:
        moved = self.move(self.message().id, action, replayed_as=self.message().id)
        assert (moved.ok, moved.state) == (False, None)

    def test_each_move_has_its_answer(self) -> None:
        dead, ready = self.put_in(State.DEAD), self.put_in(State.READY)
        moves = [Move(id=id, action=Action.CANCEL) for id in (ready, dead, self.message().id)]
        assert [moved.ok for moved in self.engine.move(self.queue, moves)] == [True, False, False]

    def test_a_cancelled_message_is_gone(self) -> None:
        for id in (self.put(), self.put(delay=SECOND)):
            assert self.move(id, Action.CANCEL).ok
            assert self.state(id) is None
        self.clock.advance("2s")
        assert self.claim_ids() == []

    def test_a_ready_message_can_be_rescheduled(self) -> None:
        id = self.put()
        self.move(id, Action.RESCHEDULE, delay=10 * SECOND)
        assert (self.state(id), self.entry(id).due) == (State.SCHEDULED, self.clock() + 10 * SECOND)
        self.clock.advance("9999ms")
        assert self.claim_ids() == []
        self.clock.advance("1ms")
        assert self.claim_ids() == [id]

    def test_a_scheduled_message_can_be_rescheduled_to_an_instant(self) -> None:
        id = self.put(delay=HOUR)
        self.move(id, Action.RESCHEDULE, due=self.clock() + SECOND)
        self.clock.advance("1s")
        assert self.claim_ids() == [id]

    def test_capacity_never_refuses_a_reschedule(self) -> None:
        self.declare(capacity=1)
        id = self.put()
        assert self.move(id, Action.RESCHEDULE, delay=SECOND).ok

    def test_run_now_makes_a_scheduled_message_ready(self) -> None:
        id = self.put(delay=HOUR)
        assert self.move(id, Action.RUN_NOW).ok
        assert self.state(id) is State.READY
        assert self.claim_ids() == [id]

    def test_run_now_keeps_the_attempts_of_a_retrying_message(self) -> None:
        delivery = self.put_and_take()
        self.retry(delivery, delay=HOUR)
        self.move(delivery.message.id, Action.RUN_NOW)
        assert self.take().attempt == 1

    def test_a_discarded_dead_letter_is_gone(self) -> None:
        id = self.put_dead()
        assert self.move(id, Action.DISCARD).ok
        assert self.state(id) is None
        assert self.stats.dead == 0


class ReplayContract(ContractBase):
    """A replay puts a new message under an id that follows from (id, number); the dead letter stays."""

    def replay(self, id: str, number: int = 1, **fields: object) -> Moved:
        return self.move(id, Action.REPLAY, number=number, **fields)

    def test_a_replay_is_a_new_message(self) -> None:
        dead = self.put_dead(body=b"payload", kind="mail", priority=9, headers={"a": "b"}, correlation_id="c")
        moved = self.replay(dead)
        assert (moved.ok, moved.replayed_as) == (True, replay_id(dead, 1))
        delivery = self.take()
        assert (delivery.message.id, delivery.attempt, delivery.deliveries) == (replay_id(dead, 1), 0, 1)
        old, new = self.entry(dead).message, delivery.message
        for field in ("body", "kind", "priority", "headers", "correlation_id", "content_type"):
            assert getattr(new, field) == getattr(old, field)

    def test_a_replayed_dead_letter_stays_and_is_marked(self) -> None:
        dead = self.put_dead()
        self.replay(dead)
        entry = self.entry(dead)
        assert (entry.state, entry.replayed_as) == (State.DEAD, (replay_id(dead, 1),))

    def test_a_replay_twice_with_one_number_is_one_message(self) -> None:
        dead = self.put_dead()
        assert self.replay(dead).replayed_as == self.replay(dead).replayed_as
        assert self.stats.depth == 1
        assert len(self.entry(dead).replayed_as) == 1

    def test_a_replay_twice_with_one_number_in_one_call_is_one_message(self) -> None:
        move = Move(id=self.put_dead(), action=Action.REPLAY)
        first, second = self.engine.move(self.queue, [move, move])
        assert first.replayed_as == second.replayed_as
        assert self.stats.depth == 1

    def test_a_replay_is_remembered_after_it_was_worked_on(self) -> None:
        dead = self.put_dead()
        self.replay(dead)
        self.ack(self.take())
        self.clock.advance("23h")
        self.replay(dead)
        assert self.stats.depth == 0

    def test_a_replay_with_another_number_is_another_message(self) -> None:
        dead = self.put_dead()
        self.replay(dead, number=1)
        self.replay(dead, number=2)
        assert self.claim_ids() == [replay_id(dead, 1), replay_id(dead, 2)]
        assert self.entry(dead).replayed_as == (replay_id(dead, 1), replay_id(dead, 2))

    def test_the_edited_payload_of_a_replay_goes_into_the_new_message_only(self) -> None:
        dead = self.put_dead(body=b"broken")
        self.replay(dead, body=b"mended")
        assert self.take().message.body == b"mended"
        assert self.entry(dead).message.body == b"broken"

    def test_the_headers_of_a_replay_may_be_others(self) -> None:
        dead = self.put_dead(body=b"x", headers={"a": "b"}, unique_key="k", content_type=BINARY)
        for number, headers in enumerate(({"c": "d" * 300}, {}), 1):
            self.replay(dead, number=number, headers=headers)
            again = self.take()
            assert (again.message.headers, again.message.body) == (headers, b"x")
            assert (again.message.unique_key, again.message.content_type) == ("k", BINARY)
            self.ack(again)
        assert self.entry(dead).message.headers == {"a": "b"}

    def test_a_replay_may_get_its_first_headers_and_lose_its_only_ones(self) -> None:
        bare, dressed = self.put_dead(body=b"x"), self.put_dead(body=b"y", headers={"a": "b"})
        self.replay(bare, headers={"a": "b"})
        self.replay(dressed, headers={})
        messages = [self.take().message for _ in range(2)]
        assert [(each.body, each.headers) for each in messages] == [(b"x", {"a": "b"}), (b"y", {})]

    def test_an_edited_payload_may_have_another_content_type(self) -> None:
        dead = self.put_dead()
        self.replay(dead, body=b"\0", content_type=BINARY)
        assert self.take().message.content_type == BINARY

    def test_a_replay_is_refused_while_its_unique_key_is_held(self) -> None:
        dead = self.put_dead(unique_key="user:4")
        self.put(unique_key="user:4")
        assert not self.replay(dead).ok
        assert self.stats.depth == 1
        assert self.entry(dead).replayed_as == ()

    def test_a_replay_is_allowed_once_its_unique_key_is_free(self) -> None:
        dead = self.put_dead(unique_key="user:4")
        self.put(unique_key="user:4")
        self.ack(self.take())
        assert self.replay(dead).ok
        assert self.take().message.unique_key == "user:4"

    def test_a_replay_obeys_capacity_and_changes_nothing_then(self) -> None:
        self.declare(capacity=2)
        moves = [Move(id=self.put_dead(), action=Action.REPLAY) for _ in range(2)]
        self.put()
        before = self.stats
        with pytest.raises(QueueFull):
            self.engine.move(self.queue, moves)
        assert self.stats == before
        assert self.entry(moves[0].id).replayed_as == ()

    def test_a_repeated_replay_is_accepted_at_full_capacity(self) -> None:
        self.declare(capacity=1)
        dead = self.put_dead()
        assert self.replay(dead).ok
        assert self.replay(dead).ok

    def test_an_expired_dead_letter_can_be_replayed(self) -> None:
        id = self.put(ttl=SECOND)
        self.clock.advance("2s")
        self.engine.sweep(self.queue)
        assert self.replay(id).ok
        assert self.claim_ids() == [replay_id(id, 1)]

    def test_a_dead_letter_put_as_one_can_be_replayed(self) -> None:
        id = self.put(failure=BOOM)
        self.replay(id)
        assert self.claim_ids() == [replay_id(id, 1)]

    def test_a_replay_into_another_queue_is_only_noted(self) -> None:
        dead, new = self.put_dead(), self.message().id
        for _ in range(2):
            assert self.move(dead, Action.MARK_REPLAYED, replayed_as=new).ok
        assert self.entry(dead).replayed_as == (new,)
        assert self.stats.depth == 0

    def test_an_edited_payload_says_what_it_is(self) -> None:
        id = self.put_dead(body=b"raw", content_type="application/octet-stream")
        moved = self.move(id, Action.REPLAY, body=b"{}", content_type="application/json")
        message = self.entry(moved.replayed_as or "").message
        assert (message.body, message.content_type) == (b"{}", "application/json")


class PauseContract(ContractBase):
    """pause stops claims only; puts, settles, promotion and reclaim go on."""

    def test_a_paused_queue_gives_nothing_and_says_why(self) -> None:
        self.put()
        self.engine.pause(self.queue)
        claimed = self.ask(5)
        assert (claimed.deliveries, claimed.blocked_by) == ([], BlockedBy.PAUSE)

    def test_a_resumed_queue_gives_again(self) -> None:
        id = self.put()
        self.engine.pause(self.queue)
        self.engine.resume(self.queue)
        assert self.claim_ids() == [id]
        assert not self.stats.paused

    def test_a_paused_queue_shows_that_and_why(self) -> None:
        self.engine.pause(self.queue, "database upgrade")
        assert self.stats.paused
        assert (self.info.paused, self.info.pause_reason) == (True, "database upgrade")
        self.engine.resume(self.queue)
        assert (self.info.paused, self.info.pause_reason) == (False, "")

    def test_a_pause_for_a_while_ends_by_itself(self) -> None:
        id = self.put()
        self.engine.pause(self.queue, "deploy", span=MINUTE)
        end = self.clock() + MINUTE
        assert (self.stats.paused, self.stats.paused_until) == (True, end)
        assert self.info[2:] == (True, "deploy", end)
        self.keep_in_touch("59999ms")
        assert self.ask().blocked_by is BlockedBy.PAUSE
        self.clock.advance("1ms")
        assert (self.stats.paused, self.stats.paused_until) == (False, None)
        assert self.info[2:] == (False, "", None)
        assert self.claim_ids() == [id]
        (told,) = self.log("resume")
        assert told.info == {"triggered_by": "time"}
        assert self.log("pause")[0].info == {"reason": "deploy", "until": end}

    def test_who_claims_in_vain_is_told_when_the_pause_ends(self) -> None:
        self.put()
        self.engine.pause(self.queue, span=5 * SECOND)
        self.clock.advance("2s")
        assert self.ask().next_wake == 3 * SECOND

    def test_a_sweep_ends_a_pause_and_rings(self) -> None:
        self.put()
        self.engine.pause(self.queue, span=SECOND)
        assert self.engine.sweep(self.queue).next_wake <= SECOND
        waiter = self.waiter()
        self.clock.advance("1s")
        self.engine.sweep(self.queue)
        assert waiter.wait(RING)
        assert len(self.log("resume")) == 1

    def test_who_waits_is_rung_for_a_pause_that_has_an_end(self) -> None:
        self.declare()  # and no put: that would ring too
        waiter = self.waiter()
        self.engine.pause(self.queue, span=SECOND)
        assert waiter.wait(RING)

    def test_a_pause_replaces_the_one_before_it(self) -> None:
        self.put()
        self.engine.pause(self.queue, "short", span=SECOND)
        self.engine.pause(self.queue, "long")
        self.clock.advance("2s")
        assert self.info[2:] == (True, "long", None)
        assert self.ask().blocked_by is BlockedBy.PAUSE
        self.engine.pause(self.queue, "again", span=SECOND)
        self.engine.resume(self.queue)
        assert self.info[2:] == (False, "", None)
        self.engine.pause(self.queue, "for ever")
        self.clock.advance("2s")
        assert self.stats.paused

    def test_a_reason_is_never_taken_for_an_end(self) -> None:
        self.engine.pause(self.queue, "x\x1funtil 5")
        assert self.info[2:] == (True, "x until 5", None)

    @pytest.mark.parametrize("span", [0, -1, 1.5, "1s"])
    def test_a_pause_for_no_time_is_refused(self, span: int) -> None:
        with pytest.raises(InvalidInput):
            self.engine.pause(self.queue, span=span)
        assert self.engine.queues([self.queue]) == []

    def test_puts_go_on_while_paused(self) -> None:
        self.engine.pause(self.queue)
        assert self.state(self.put()) is State.READY

    def test_settles_go_on_while_paused(self) -> None:
        delivery = self.put_and_take()
        self.engine.pause(self.queue)
        assert self.renew(delivery) is Outcome.OK
        assert self.ack(delivery) is Outcome.OK

    def test_promotion_and_reclaim_go_on_while_paused(self) -> None:
        delivery, due = self.put_and_take(), self.put(delay=SECOND)
        self.engine.pause(self.queue)
        self.run_out()
        assert self.state(delivery.message.id) is State.READY
        assert self.state(due) is State.READY

    def test_another_queue_goes_on_while_one_is_paused(self) -> None:
        id = self.put()
        self.engine.pause(self.queue + "-other")
        assert self.claim_ids() == [id]

    def test_resuming_what_is_not_paused_is_fine(self) -> None:
        self.put()
        self.engine.resume(self.queue)
        assert not self.stats.paused


class PurgeContract(ContractBase):
    """Promise 7: purge drops what waits; what is processing or dead stays."""

    def test_purge_drops_ready_and_scheduled_and_says_how_many(self) -> None:
        self.put_many(3)
        self.put_many(2, delay=SECOND)
        assert self.engine.purge(self.queue) == 5
        self.clock.advance("2s")
        assert (self.stats.depth, self.claim_ids()) == (0, [])

    def test_purge_leaves_processing_and_dead(self) -> None:
        dead, processing = self.put_dead(), self.put_and_take()
        self.put()
        assert self.engine.purge(self.queue) == 1
        assert self.state(dead) is State.DEAD
        assert self.ack(processing) is Outcome.OK

    def test_what_was_purged_does_not_exist(self) -> None:
        ids = [self.put(), self.put(delay=SECOND)]
        self.engine.purge(self.queue)
        assert self.engine.get(self.queue, ids) == [None, None]
        assert self.found(State.READY) + self.found(State.SCHEDULED) == []

    def test_a_purged_id_may_be_put_again(self) -> None:
        id = self.put(remember=HOUR, body=b"first")
        self.engine.purge(self.queue)
        assert self.put_again(id, body=b"second")
        assert self.take().message.body == b"second"

    def test_purge_frees_capacity(self) -> None:
        self.declare(capacity=2)
        self.put_many(2)
        self.engine.purge(self.queue)
        assert len(self.put_many(2)) == 2

    def test_a_purged_message_never_expires(self) -> None:
        self.put(ttl=SECOND)
        self.engine.purge(self.queue)
        self.clock.advance("2s")
        assert self.engine.sweep(self.queue).expired == 0
        assert self.counter("expired") == 0

    def test_an_unknown_queue_has_nothing_to_purge(self) -> None:
        assert self.engine.purge(self.queue) == 0
