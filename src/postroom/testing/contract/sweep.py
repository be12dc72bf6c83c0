"""Time does its work: reclaim, dead letters, promotion, limits of a sweep, and the grace after an outage."""

from __future__ import annotations

from postroom.logs import LogEntry
from postroom.model import Outcome, State, Swept
from postroom.testing.contract.base import MINUTE, SECOND, ContractBase


class ReclaimContract(ContractBase):
    """What ran out returns to its place — or is dead when its attempts are used up, in one step."""

    def test_what_ran_out_is_ready_again(self) -> None:
        id = self.put_and_take().message.id
        self.run_out()
        assert self.state(id) is State.READY
        assert self.stats.processing == 0

    def test_a_claim_reclaims_too(self) -> None:
        id = self.put_and_take().message.id
        self.keep_in_touch("30001ms")
        assert self.claim_ids() == [id]

    def test_a_started_run_out_counts_an_attempt(self) -> None:
        id = self.put_and_take().message.id
        self.run_out()
        entry = self.entry(id)
        assert (entry.attempt, entry.ran_out, entry.strays) == (1, 1, 0)

    def test_an_unstarted_run_out_counts_a_stray_and_no_attempt(self) -> None:
        id = self.put()
        self.take(start=0)
        self.run_out()
        entry = self.entry(id)
        assert (entry.attempt, entry.ran_out, entry.strays) == (0, 0, 1)

    def test_unstarted_run_outs_never_use_up_the_attempts(self) -> None:
        self.declare(suspect_after=100)
        id = self.put(max_attempts=1)
        for _ in range(5):
            self.take(start=0)
            self.run_out()
        assert self.state(id) is State.READY

    def test_the_last_started_run_out_is_a_dead_letter(self) -> None:
        id = self.put(max_attempts=2)
        for state in (State.READY, State.DEAD):
            self.take()
            self.run_out()
            assert self.state(id) is state
        assert self.entry(id).attempt == 2

    def test_work_that_took_too_long_died_of_its_ack_timeout(self) -> None:
        id = self.put_and_take(max_attempts=1).message.id
        self.run_out()
        entry = self.entry(id)
        assert entry.failure is not None
        assert (entry.failure.type, entry.failed_at) == ("AckTimeout", self.clock())
        assert (entry.last_error or "").startswith("AckTimeout: ")

    def test_work_of_a_silent_consumer_died_of_its_lease(self) -> None:
        id = self.put(max_attempts=1)
        self.take(lease=10 * SECOND)
        self.run_out("11s")
        entry = self.entry(id)
        assert entry.failure is not None
        assert (entry.failure.type, entry.failed_at) == ("LeaseExpired", self.clock())

    def test_a_late_sweep_does_not_take_a_silent_consumer_for_a_slow_one(self) -> None:
        id = self.put(max_attempts=1)
        self.take(lease=10 * SECOND)
        self.clock.advance("1h")
        self.engine.sweep(self.queue)  # after such a silence the living report first
        self.run_out("11s")
        assert (self.entry(id).last_error or "").startswith("LeaseExpired")

    def test_without_an_ack_timeout_a_run_out_is_a_lease_expired(self) -> None:
        self.declare(ack_timeout=None)
        id = self.put_and_take(max_attempts=1).message.id
        self.run_out()
        assert (self.entry(id).last_error or "").startswith("LeaseExpired")

    def test_a_dead_letter_by_run_out_has_a_fingerprint(self) -> None:
        self.put_and_take(kind="mail", max_attempts=1)
        self.put_and_take(kind="mail", max_attempts=1)
        self.run_out()
        entries = self.engine.find(self.queue, State.DEAD).entries
        groups = {entry.failure.fingerprint for entry in entries if entry.failure}
        assert len(entries) == 2
        assert len(groups) == 1


class SweepContract(ContractBase):
    """A sweep does what time demands without claiming; each kind of work is bounded by `limit`."""

    def test_a_sweep_says_what_it_did(self) -> None:
        self.put_many(2)
        self.put(max_attempts=1)
        self.claim(3)
        self.put(delay=20 * SECOND)
        self.keep_in_touch("30001ms")
        swept = self.engine.sweep(self.queue)
        assert (swept.reclaimed, swept.dead, swept.promoted, swept.full) == (3, 1, 1, False)

    def test_an_idle_queue_has_nothing_to_sweep(self) -> None:
        self.put()
        assert self.engine.sweep(self.queue)._replace(next_wake=0) == Swept()

    def test_an_unknown_queue_has_nothing_to_sweep(self) -> None:
        assert self.engine.sweep(self.queue)._replace(next_wake=0) == Swept()
        assert self.engine.queues([self.queue]) == []

    def test_reclaiming_is_bounded_and_says_when_it_is_not_done(self) -> None:
        self.put_many(5)
        self.claim(5)
        self.keep_in_touch("30001ms")
        swept = [self.engine.sweep(self.queue, limit=2) for _ in range(3)]
        assert [sweep.reclaimed for sweep in swept] == [2, 2, 1]
        assert [sweep.full for sweep in swept] == [True, True, False]

    def test_promotion_is_bounded_and_says_when_it_is_not_done(self) -> None:
        self.put_many(5, delay=SECOND)
        self.clock.advance("1s")
        swept = [self.engine.sweep(self.queue, limit=2) for _ in range(3)]
        assert [sweep.promoted for sweep in swept] == [2, 2, 1]
        assert [sweep.full for sweep in swept] == [True, True, False]

    def test_next_wake_of_a_sweep_is_the_span_to_the_next_due_time(self) -> None:
        self.put(delay=5 * SECOND)
        assert self.engine.sweep(self.queue).next_wake == 5 * SECOND

    def test_next_wake_of_a_sweep_is_the_span_to_the_next_deadline(self) -> None:
        self.put_and_take(ack_timeout=5 * SECOND)
        wake = self.engine.sweep(self.queue).next_wake
        assert wake >= 5 * SECOND
        self.keep_in_touch(f"{wake}ms")
        assert self.engine.sweep(self.queue).reclaimed == 1

    def test_a_paused_queue_is_swept_like_any_other(self) -> None:
        self.put_and_take()
        self.put(delay=SECOND)
        self.engine.pause(self.queue)
        self.keep_in_touch("30001ms")
        swept = self.engine.sweep(self.queue)
        assert (swept.reclaimed, swept.promoted) == (1, 1)


class SweepLogContract(ContractBase):
    """One log entry per call says how many came back and how many died, and who asked."""

    def run_out_mixed(self, triggered_by: str) -> LogEntry:
        """Two that come back and one that dies; the entry of the sweep that saw it."""
        self.put_many(2)
        self.put(max_attempts=1)
        self.claim(3)
        self.keep_in_touch("30001ms")
        if triggered_by == "claim":
            self.claim(0)
        else:
            self.engine.sweep(self.queue, triggered_by=triggered_by)
        (entry,) = self.log("requeue")
        return entry

    def test_a_sweep_logs_what_it_returned(self) -> None:
        entry = self.run_out_mixed("scheduler")
        assert (entry.count, len(entry.ids), entry.at) == (2, 2, self.clock())
        assert entry.info == {"dlq_count": 1, "triggered_by": "scheduler"}

    def test_an_operators_sweep_says_so(self) -> None:
        assert self.run_out_mixed("operator").info == {"dlq_count": 1, "triggered_by": "operator"}

    def test_a_claim_that_reclaims_says_so(self) -> None:
        assert self.run_out_mixed("claim").info == {"dlq_count": 1, "triggered_by": "claim"}

    def test_what_died_is_logged_too(self) -> None:
        self.run_out_mixed("scheduler")
        (entry,) = self.log("move_to_dlq")
        assert (entry.count, list(entry.ids)) == (1, self.found(State.DEAD))

    def test_a_sweep_without_work_logs_nothing(self) -> None:
        self.put()
        self.engine.sweep(self.queue)
        assert self.engine.log(self.queue, after="").entries == []

    def test_an_entry_holds_at_most_fifty_ids(self) -> None:
        ids = self.put_many(60)
        self.claim(60)
        self.run_out()
        (entry,) = self.log("requeue")
        assert (entry.count, len(set(entry.ids))) == (60, 50)
        assert set(entry.ids) <= set(ids)


class GraceContract(ContractBase):
    """Promise 11: after a silence of half a lease nothing is reclaimed for a third of a lease."""

    def test_after_a_silence_nothing_is_reclaimed_at_first(self) -> None:
        self.put_and_take()
        self.clock.advance("5m")
        assert self.claim() == []
        assert self.engine.sweep(self.queue).reclaimed == 0

    def test_after_the_grace_it_is_reclaimed(self) -> None:
        id = self.put_and_take().message.id
        self.clock.advance("5m")
        self.touch()
        self.clock.advance("9999ms")
        assert self.claim() == []
        self.clock.advance("2ms")
        assert self.claim_ids() == [id]

    def test_next_wake_leads_to_the_end_of_the_grace(self) -> None:
        self.put_and_take()
        self.clock.advance("5m")
        wake = self.ask().next_wake
        assert 0 < wake <= 10 * SECOND + 1
        self.clock.advance(f"{wake}ms")
        assert len(self.claim()) == 1

    def test_in_the_grace_a_consumer_keeps_what_it_renews(self) -> None:
        delivery = self.put_and_take()
        self.clock.advance("5m")
        self.touch()
        assert self.extend(delivery) is Outcome.OK
        self.keep_in_touch("15s")
        assert self.claim() == []
        assert self.ack(delivery) is Outcome.OK

    def test_a_silence_of_less_than_half_a_lease_is_none(self) -> None:
        id = self.put_and_take(ack_timeout=SECOND).message.id
        self.clock.advance("14s")
        assert self.claim_ids() == [id]

    def test_looking_is_not_a_sign_of_life(self) -> None:
        id = self.put_and_take().message.id
        for _ in range(10):
            self.clock.advance("5s")
            assert self.stats.processing == 1
            assert self.state(id) is State.PROCESSING
            assert self.found(State.PROCESSING) == [id]
        assert self.claim() == []

    def test_a_grace_holds_back_nothing_else(self) -> None:
        self.put_and_take()
        due = self.put(delay=MINUTE)
        self.clock.advance("5m")
        assert self.claim_ids() == [due]

    def test_queues_have_their_own_silence(self) -> None:
        self.put_and_take()
        for _ in range(10):
            self.clock.advance("5s")
            self.engine.renew(self.queue + "-other", [], 30 * SECOND)
        assert self.claim() == []
