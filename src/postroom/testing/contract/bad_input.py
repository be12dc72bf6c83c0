"""Bad input is a typed error, and nothing was changed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import pytest

from postroom.duration import MAX_SPAN
from postroom.errors import BodyTooLarge, InvalidInput
from postroom.limits import LAST_DUE, MAX_PUT_BYTES
from postroom.model import Action, Move, Settlement, State, Verb
from postroom.policy import Policy
from postroom.testing.contract.base import HOUR, SECOND, ContractBase

BAD_NAMES = ["", "a\0b", "line\nbreak", "{tag}", "x" * 201, "ü" * 101, "\ud800"]
FAR = 40 * 365 * 24 * HOUR
WRONG_TIMES = [{"delay": -1}, {"delay": MAX_SPAN + 1}, {"due": LAST_DUE + 1}, {"due": -1}]


class BadInputContract(ContractBase):
    """When a call raises, nothing was changed."""

    @contextlib.contextmanager
    def refused(self, error: type[InvalidInput] = InvalidInput) -> Iterator[None]:
        """What is done inside raises this and changes nothing."""
        before = self.whole_queue()
        with pytest.raises(error):
            yield
        assert self.whole_queue() == before

    def whole_queue(self) -> list[object]:
        found = [self.engine.find(self.queue, state).entries for state in State]
        return [self.engine.queues(), self.stats, found]

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_a_bad_queue_name(self, name: str) -> None:
        self.put()
        with self.refused():
            self.engine.put(name, [self.message()])
        with self.refused():
            self.engine.declare(name, Policy())
        with self.refused():
            self.engine.pause(name)

    @pytest.mark.parametrize(
        "fields",
        [
            {"priority": -1},
            {"priority": 256},
            {"delay": -1},
            {"delay": FAR},
            {"due": LAST_DUE + 1},
            {"due": -1},
            {"ttl": 0},
            {"ack_timeout": 0},
            {"max_attempts": 0},
            {"remember": -1},
            {"id": "not an id"},
            {"kind": "a\0b"},
            {"unique_key": "x" * 201},
            {"correlation_id": "\ud800"},
            {"headers": {"a": "\ud800"}},
            {"headers": {"a": "x" * 2**16}},
            {"content_type": "application/x-python-serialize"},
            {"content_type": "application/pickle"},
        ],
        ids=repr,
    )
    def test_a_bad_message(self, fields: dict[str, Any]) -> None:
        self.put()
        with self.refused():
            self.put(**fields)

    def test_one_bad_message_refuses_the_whole_call(self) -> None:
        with self.refused():
            self.engine.put(self.queue, [self.message(), self.message(delay=FAR)])

    def test_a_body_larger_than_max_body(self) -> None:
        self.engine.max_body = 10
        with self.refused(BodyTooLarge):
            self.engine.put(self.queue, [self.message(body=bytes(10)), self.message(body=bytes(11))])

    def test_more_bytes_than_fit_into_one_put(self) -> None:
        part = MAX_PUT_BYTES // 16
        with self.refused():
            self.engine.put(self.queue, [self.message(body=bytes(part)) for _ in range(17)])

    def test_more_than_a_thousand_items(self) -> None:
        receipts, id = [self.put_and_take().receipt] * 1_001, self.put()
        settlements = [Settlement(receipt) for receipt in receipts]
        for call in (
            lambda: self.put_many(1_001),
            lambda: self.engine.settle(self.queue, settlements),
            lambda: self.engine.turn(self.queue, settlements, [], None),
            lambda: self.engine.turn(self.queue, settlements[:1], receipts, None),
            lambda: self.engine.renew(self.queue, receipts, SECOND),
            lambda: self.engine.extend(self.queue, receipts),
            lambda: self.engine.get(self.queue, [id] * 1_001),
            lambda: self.engine.move(self.queue, [Move(id=id, action=Action.CANCEL)] * 1_001),
            lambda: self.engine.publish("topic", [b""] * 1_001),
        ):
            with self.refused():
                call()
        assert self.engine.read("topic", after="").entries == []

    @pytest.mark.parametrize("wrong", [{"n": -1}, {"n": 1_001}, {"lease": 0}, {"lease": -1}], ids=repr)
    def test_a_bad_claim(self, wrong: dict[str, int]) -> None:
        self.put()
        with self.refused():
            self.ask(**wrong)

    @pytest.mark.parametrize("span", [0, -1, MAX_SPAN + 1])
    def test_a_bad_span(self, span: int) -> None:
        receipts = [self.put_and_take().receipt]
        with self.refused():
            self.engine.renew(self.queue, receipts, span)
        with self.refused():
            self.engine.extend(self.queue, receipts, span=span)
        with self.refused():
            self.engine.extend(self.queue, receipts, lease=span)

    @pytest.mark.parametrize("limit", [0, -1, 1_001])
    def test_a_bad_limit(self, limit: int) -> None:
        self.put()
        with self.refused():
            self.engine.find(self.queue, State.READY, limit=limit)
        with self.refused():
            self.engine.sweep(self.queue, limit=limit)
        with self.refused():
            self.engine.log(self.queue, limit=limit)
        with self.refused():
            self.engine.read("topic", limit=limit)
        with self.refused():
            self.engine.records.list("kind", limit=limit)

    @pytest.mark.parametrize("cursor", ["garbage", "☃", "-1", "{}"])
    @pytest.mark.parametrize("state", list(State))
    def test_a_made_up_cursor(self, state: State, cursor: str) -> None:
        self.put()
        with self.refused():
            self.engine.find(self.queue, state, cursor=cursor)

    @pytest.mark.parametrize("fields", WRONG_TIMES, ids=repr)
    def test_a_bad_retry(self, fields: dict[str, int]) -> None:
        delivery = self.put_and_take()
        with self.refused():
            self.retry(delivery, **fields)

    @pytest.mark.parametrize("fields", WRONG_TIMES, ids=repr)
    def test_a_bad_reschedule(self, fields: dict[str, int]) -> None:
        id = self.put()
        with self.refused():
            self.move(id, Action.RESCHEDULE, **fields)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"action": Action.REPLAY, "number": 0},
            {"action": Action.REPLAY, "content_type": "application/x-pickle"},
            {"action": Action.MARK_REPLAYED},
        ],
        ids=repr,
    )
    def test_a_bad_replay(self, wrong: dict[str, Any]) -> None:
        id = self.put_dead()
        with self.refused():
            self.move(id, **wrong)

    def test_one_bad_move_refuses_the_whole_call(self) -> None:
        first, second = self.put_many(2)
        moves = [
            Move(id=first, action=Action.CANCEL),
            Move(id=second, action=Action.RESCHEDULE, delay=-1),
        ]
        with self.refused():
            self.engine.move(self.queue, moves)

    def test_an_unknown_action(self) -> None:
        id, unknown = self.put(), "explode"
        with self.refused():
            self.move(id, cast(Action, unknown))

    def test_a_receipt_of_another_queue(self) -> None:
        receipt = self.put_and_take().receipt._replace(queue=self.queue + "-other")
        with self.refused():
            self.engine.settle(self.queue, [Settlement(receipt)])
        with self.refused():
            self.engine.renew(self.queue, [receipt], SECOND)
        with self.refused():
            self.engine.extend(self.queue, [receipt])
        with self.refused():
            self.start(receipt)

    def test_an_unknown_verb(self) -> None:
        delivery, unknown = self.put_and_take(), "explode"
        with self.refused():
            self.settle(delivery, cast(Verb, unknown))

    def test_one_bad_settlement_refuses_the_whole_call(self) -> None:
        self.put_many(2)
        first, second = (delivery.receipt for delivery in self.claim(2))
        with self.refused():
            self.engine.settle(self.queue, [Settlement(first), Settlement(second, Verb.RETRY, delay=-1)])

    def test_a_replayed_body_larger_than_max_body(self) -> None:
        id = self.put_dead()
        self.engine.max_body = 10
        with self.refused(BodyTooLarge):
            self.move(id, Action.REPLAY, body=bytes(11))

    @pytest.mark.parametrize(
        "fields", [{"priority": 5.5}, {"delay": 1.5}, {"body": "text"}, {"id": 5}, {"max_attempts": True}]
    )
    def test_a_value_of_the_wrong_type(self, fields: dict[str, Any]) -> None:
        with self.refused():
            self.put(**fields)
