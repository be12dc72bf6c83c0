"""get and find: look at messages without touching them."""

from __future__ import annotations

import hashlib

import pytest

from postroom.logs import Stored
from postroom.model import Action, Failure, Outcome, Settlement, State, Verb
from postroom.policy import fingerprint
from postroom.testing.contract.base import BOOM, HOUR, SECOND, ContractBase


class GetContract(ContractBase):
    """get shows messages and where they stand; None for what does not exist."""

    def test_an_unknown_id_is_none(self) -> None:
        self.put()
        assert self.engine.get(self.queue, [self.message().id]) == [None]

    def test_an_unknown_queue_has_no_messages(self) -> None:
        assert self.engine.get(self.queue, [self.message().id]) == [None]

    def test_get_answers_in_the_order_asked(self) -> None:
        first, second = self.put_many(2)
        entries = self.engine.get(self.queue, [second, self.message().id, first, second])
        assert [entry and entry.message.id for entry in entries] == [second, None, first, second]

    def test_get_shows_every_state(self) -> None:
        self.declare(keep_done="1h")
        dead, processing, done = self.put_dead(), self.put_and_take(), self.put_and_take()
        self.ack(done)
        ids = [self.put(), self.put(delay=HOUR), processing.message.id, done.message.id, dead]
        states = [State.READY, State.SCHEDULED, State.PROCESSING, State.DONE, State.DEAD]
        assert [self.state(id) for id in ids] == states

    def test_a_processing_message_shows_its_delivery(self) -> None:
        delivery = self.put_and_take()
        entry = self.entry(delivery.message.id)
        assert (entry.deadline, entry.started_at, entry.deliveries) == (delivery.deadline, self.clock(), 1)

    def test_a_waiting_message_shows_no_delivery(self) -> None:
        delivery = self.put_and_take()
        self.release(delivery)
        entry = self.entry(delivery.message.id)
        assert (entry.deadline, entry.started_at, entry.deliveries) == (None, None, 1)

    def test_a_processing_message_shows_the_receipt_that_holds_it(self) -> None:
        delivery = self.put_and_take()
        entry = self.entry(delivery.message.id)
        assert entry.receipt == delivery.receipt
        (found,) = self.engine.find(self.queue, State.PROCESSING).entries
        assert found.token == delivery.token

    def test_the_receipt_shown_settles_like_the_consumers_own(self) -> None:
        delivery = self.put_and_take()
        receipt = self.entry(delivery.message.id).receipt
        assert receipt is not None
        assert self.engine.extend(self.queue, [receipt], span=HOUR) == [Outcome.OK]
        assert self.entry(delivery.message.id).deadline == self.clock() + HOUR
        assert self.engine.settle(self.queue, [Settlement(receipt, Verb.RELEASE)]) == [Outcome.OK]
        assert self.engine.settle(self.queue, [Settlement(delivery.receipt)]) == [Outcome.LOST]
        again = self.take()
        assert again.attempt == 0, "a release does not count"
        assert self.engine.settle(self.queue, [Settlement(receipt, Verb.RELEASE)]) == [Outcome.LOST]

    def test_what_nobody_holds_shows_no_receipt(self) -> None:
        self.declare(keep_done="1h")
        dead, done, released = self.put_dead(), self.put_and_take(), self.put_and_take()
        self.ack(done)
        self.release(released)
        ids = [self.put(), self.put(delay=HOUR), done.message.id, dead, released.message.id]
        assert [self.entry(id).receipt for id in ids] == [None] * 5

    def test_get_shows_the_hash_of_the_payload(self) -> None:
        hashed = hashlib.sha1(b"payload", usedforsecurity=False).hexdigest()
        assert self.entry(self.put(body=b"payload")).payload_hash == hashed


class StoredContract(ContractBase):
    """stored shows what the store itself keeps of a message, and where."""

    def kept(self, id: str) -> list[Stored]:
        return self.engine.stored(self.queue, id)

    def holds(self, id: str, body: bytes) -> bool:
        return any(body in each.value for each in self.kept(id) if isinstance(each.value, bytes))

    def test_every_state_is_shown_with_its_body(self) -> None:
        self.declare(keep_done="1h")
        body = {"body": b"b7"}
        dead, processing, done = self.put_dead(**body), self.put_and_take(**body), self.put_and_take(**body)
        self.ack(done)
        waiting = [self.put(**body), self.put(delay=HOUR, **body)]
        for id in [*waiting, processing.message.id, done.message.id, dead]:
            places = [each.place for each in self.kept(id)]
            assert len(set(places)) == len(places), "a place is told once"
            assert self.holds(id, b"b7")

    def test_looking_changes_nothing(self) -> None:
        delivery = self.put_and_take()
        before = self.entry(delivery.message.id)
        assert self.kept(delivery.message.id) == self.kept(delivery.message.id)
        assert self.entry(delivery.message.id) == before

    def test_a_large_body_is_whole(self) -> None:
        body = b"x" * 200_000
        assert self.holds(self.put(body=body), body)

    def test_nothing_is_kept_of_what_does_not_exist(self) -> None:
        assert self.kept(self.message().id) == []
        delivery = self.put_and_take()
        purged = self.put()
        self.ack(delivery)
        self.engine.purge(self.queue)
        assert [self.kept(id) for id in (delivery.message.id, purged, "", "no id")] == [[], [], [], []]


class FindContract(ContractBase):
    """Promise 9: find pages each state in its own order with keyset cursors."""

    def test_find_ready_is_in_the_order_of_claims(self) -> None:
        for priority in (3, 9, 5, 9, 3, 5, 5):
            self.put(priority=priority)
        found = self.found(State.READY, limit=2)
        assert found == self.claim_ids()

    def test_find_scheduled_is_by_due(self) -> None:
        ids = {delay: self.put(delay=delay * SECOND) for delay in (5, 2, 7, 1, 3)}
        assert self.found(State.SCHEDULED, limit=2) == [ids[delay] for delay in sorted(ids)]

    def test_find_processing_is_by_deadline(self) -> None:
        ids = {}
        for lease in (5, 2, 7, 1, 3):
            self.put()
            ids[lease] = self.take(lease=lease * SECOND).message.id
        assert self.found(State.PROCESSING, limit=2) == [ids[lease] for lease in sorted(ids)]

    def test_find_dead_is_by_death(self) -> None:
        self.put_many(5)
        ids = []
        for delivery in reversed(self.claim(5)):
            self.clock.advance("1s")
            self.bury(delivery)
            ids.append(delivery.message.id)
        assert self.found(State.DEAD, limit=2) == ids

    @pytest.mark.parametrize("limit", [1, 2, 3, 10])
    def test_pages_hold_up_to_the_limit(self, limit: int) -> None:
        ids = self.put_many(6)
        pages = self.pages(State.READY, limit=limit)
        assert [id for page in pages for id in page] == ids
        assert [len(page) for page in pages] == [min(limit, 6)] * (6 // min(limit, 6))

    def test_the_last_page_has_no_cursor(self) -> None:
        self.put_many(4)
        first = self.engine.find(self.queue, State.READY, limit=2)
        assert first.cursor is not None
        assert self.engine.find(self.queue, State.READY, limit=2, cursor=first.cursor).cursor is None

    @pytest.mark.parametrize("state", list(State))
    def test_a_state_without_messages_is_one_empty_page(self, state: State) -> None:
        assert self.engine.find(self.queue, state) == ([], None)

    def test_entries_of_one_moment_are_all_seen(self) -> None:
        scheduled, dead = self.put_many(25, delay=SECOND), self.put_many(25, failure=BOOM)
        ready = self.put_many(25)
        processing = self.claim_ids(10)
        assert sorted(self.found(State.SCHEDULED, limit=4)) == sorted(scheduled)
        assert sorted(self.found(State.DEAD, limit=4)) == sorted(dead)
        assert sorted(self.found(State.PROCESSING, limit=4)) == sorted(processing)
        assert self.found(State.READY, limit=4) == ready[10:]

    @pytest.mark.parametrize(
        "fields", [{}, {"delay": SECOND}, {"failure": BOOM}], ids=["ready", "due", "dead"]
    )
    def test_what_stays_is_seen_once_while_others_come_and_go(self, fields: dict[str, object]) -> None:
        ids = self.put_many(10, **fields)
        state = self.entry(ids[0]).state
        action = Action.DISCARD if state is State.DEAD else Action.CANCEL
        seen, cursor = list[str](), None
        for _ in range(5):
            page = self.engine.find(self.queue, state, cursor=cursor, limit=2)
            seen += [entry.message.id for entry in page.entries]
            cursor = page.cursor
            assert self.move(seen[-1], action).ok
            self.put(**fields)
        assert sorted(set(seen) & set(ids)) == sorted(ids)
        assert len(seen) == len(set(seen))

    def test_an_entry_is_what_get_shows(self) -> None:
        id = self.put_dead(kind="mail")
        assert self.engine.find(self.queue, State.DEAD).entries == [self.entry(id)]

    def test_a_page_has_at_most_4_mb_but_at_least_one_message(self) -> None:
        ids = [self.put(body=b"x" * size) for size in (2**20, 2**20, 5 * 2**20, 2**20)]
        assert self.pages(State.READY) == [ids[:2], ids[2:3], ids[3:]]


class FindDeadContract(ContractBase):
    """Dead letters are also found by group and by correlation id."""

    def put_failed(self, type: str, **fields: object) -> str:
        return self.put(failure=Failure(type=type, text="x"), **fields)

    def test_dead_letters_are_found_by_group(self) -> None:
        alike = [self.put_failed("E"), self.put_failed("E")]
        self.put_failed("F")
        group = fingerprint("", Failure(type="E", text="x"))
        assert self.found(State.DEAD, group=group) == alike

    def test_dead_letters_are_found_by_group_in_pages(self) -> None:
        alike = []
        for _ in range(5):
            alike.append(self.put_failed("E"))
            self.put_failed("F")
        group = fingerprint("", Failure(type="E", text="x"))
        assert sorted(self.found(State.DEAD, limit=2, group=group)) == sorted(alike)

    def test_dead_letters_are_found_by_correlation_id(self) -> None:
        wanted = self.put_failed("E", correlation_id="task-1")
        self.put_failed("E", correlation_id="task-2")
        self.put_failed("E")
        assert self.found(State.DEAD, correlation_id="task-1") == [wanted]

    def test_several_dead_letters_of_one_correlation_id(self) -> None:
        wanted = [self.put_failed("E", correlation_id="task-1") for _ in range(3)]
        assert sorted(self.found(State.DEAD, correlation_id="task-1")) == sorted(wanted)

    def test_what_is_not_dead_is_not_found_by_correlation_id(self) -> None:
        self.put(correlation_id="task-1")
        assert self.found(State.DEAD, correlation_id="task-1") == []

    def test_a_discarded_dead_letter_is_not_found(self) -> None:
        id = self.put_failed("E", correlation_id="task-1")
        self.move(id, Action.DISCARD)
        assert self.found(State.DEAD, correlation_id="task-1") == []
        assert self.found(State.DEAD, group=fingerprint("", Failure(type="E", text="x"))) == []

    def test_a_buried_message_is_found_by_both(self) -> None:
        id = self.put_dead(kind="mail", correlation_id="task-1")
        assert self.found(State.DEAD, correlation_id="task-1") == [id]
        assert self.found(State.DEAD, group=fingerprint("mail", BOOM)) == [id]

    def test_an_exhausted_message_is_found_by_both(self) -> None:
        delivery = self.put_and_take(kind="mail", correlation_id="task-1", max_attempts=1)
        self.settle(delivery, Verb.RETRY, failure=BOOM)
        assert self.found(State.DEAD, correlation_id="task-1") == [delivery.message.id]
        assert self.found(State.DEAD, group=fingerprint("mail", BOOM)) == [delivery.message.id]

    def test_an_unknown_group_is_empty(self) -> None:
        self.put_failed("E")
        assert self.found(State.DEAD, group="no such group") == []
