"""Deliveries: claim messages (waiting for them, if asked to) and settle them by their receipts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from litestar import Request as Connection
from litestar import post
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from postroom.delivery import retry_delay
from postroom.duration import instant, milliseconds
from postroom.errors import InvalidInput, LeaseLost
from postroom.http.service import AtDesk, Desk
from postroom.http.views import Deliveries, Moment, Request, Span, delivery, read_receipt
from postroom.limits import check_between
from postroom.model import Failure, Outcome, Receipt, Settlement, Verb
from postroom.room import Room

#: The longest that one request may wait for a message (ms): proxies between us end longer ones.
LONGEST_WAIT = 300_000


class Claim(Request):
    """Up to `n` messages; waits up to `wait` for the first. `consumer` is for people to read."""

    n: int = 1
    wait: Span = 0
    consumer: str = ""


class Retry(Request):
    """The work failed: try again `after` a span or `at` a moment, else by the queue's backoff."""

    error: str = ""
    type: str = "Failed"
    traceback: str = ""
    after: Span | None = None
    at: Moment | None = None


class Bury(Request):
    reason: str = ""
    type: str = "Rejected"
    traceback: str = ""


class Release(Request):
    delay: Span = 0


class Extend(Request):
    """More time: `span` from now, else the ack_timeout again. A checkpoint is kept for the next attempt."""

    span: Span | None = None
    checkpoint: Any = None


class Ending(Request):
    """One settlement of many."""

    receipt: str
    #: A cancel is none of these: it is an operator's, who has no receipt.
    verb: Literal["ack", "retry", "release", "bury"] = "ack"
    after: Span | None = None
    at: Moment | None = None
    error: str = ""
    type: str = ""
    traceback: str = ""


class Endings(Request):
    settlements: Annotated[list[Ending], Meta(min_length=1, max_length=1_000)]


class Outcomes(msgspec.Struct):
    """ok, gone or lost for each, in the order in which they were asked for."""

    outcomes: list[Outcome]


@post("/queues/{queue:str}/claim", opt={"action": "delivery.claim"}, status_code=200)
async def claim(
    desk: AtDesk,
    queue: FromPath[str],
    request: Connection[Any, Any, Any],
    data: JSONBody[Claim | None] = None,
) -> Deliveries:
    """Take the next messages. Waits for the first, holding no thread; an empty list: none came."""
    wanted = data or Claim()
    check_between("n", wanted.n, 1, 1_000)
    wait = min(milliseconds(wanted.wait, "wait"), LONGEST_WAIT) / 1_000
    name = desk.queue(queue).name
    consumer = wanted.consumer or desk.actor

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    leased = await desk.service.lines.claim(name, wanted.n, consumer, wait, gone)
    return Deliveries([delivery(each) for each in leased])


@post("/deliveries/{receipt:str}/ack", opt={"action": "delivery.settle"}, status_code=204)
async def ack(desk: AtDesk, receipt: FromPath[str]) -> None:
    """The work is done. 409: somebody else may have it, or it is dead; 410: it is gone, as after an ack."""
    await _settle(desk, Settlement(read_receipt(receipt)))


@post("/deliveries/{receipt:str}/retry", opt={"action": "delivery.settle"}, status_code=204)
async def retry(desk: AtDesk, receipt: FromPath[str], data: JSONBody[Retry | None] = None) -> None:
    """The work failed: again later, or a dead letter if that was the last attempt."""
    data = data or Retry()
    held = read_receipt(receipt)
    failure = Failure(type=data.type, text=data.error, traceback=data.traceback)
    await _settle(desk, await desk.call(_retry, desk.room, held, failure, data.after, data.at))


@post("/deliveries/{receipt:str}/release", opt={"action": "delivery.settle"}, status_code=204)
async def release(desk: AtDesk, receipt: FromPath[str], data: JSONBody[Release | None] = None) -> None:
    """Hand the message back to its place; does not count as an attempt."""
    delay = milliseconds(data.delay if data else 0, "delay")
    await _settle(desk, Settlement(read_receipt(receipt), Verb.RELEASE, delay=delay))


@post("/deliveries/{receipt:str}/bury", opt={"action": "delivery.settle"}, status_code=204)
async def bury(desk: AtDesk, receipt: FromPath[str], data: JSONBody[Bury | None] = None) -> None:
    """Keep the message as a dead letter now."""
    data = data or Bury()
    text = data.reason or "buried by its consumer"
    failure = Failure(type=data.type, text=text, traceback=data.traceback)
    await _settle(desk, Settlement(read_receipt(receipt), Verb.BURY, failure=failure))


@post("/deliveries/{receipt:str}/extend", opt={"action": "delivery.settle"}, status_code=204)
async def extend(desk: AtDesk, receipt: FromPath[str], data: JSONBody[Extend | None] = None) -> None:
    """TOUCH: the work may take this long from now."""
    data = data or Extend()
    held = read_receipt(receipt)
    span = None if data.span is None else milliseconds(data.span, "span")
    saved = None if data.checkpoint is None else msgspec.json.encode(data.checkpoint)
    extend_ = desk.room.engine.extend
    (outcome,) = await desk.call(extend_, held.queue, [held], span=span, checkpoint=saved)
    _check(held, outcome)


@post("/deliveries/settle", opt={"action": "delivery.settle"}, status_code=200)
async def settle(desk: AtDesk, data: JSONBody[Endings]) -> Outcomes:
    """Settle up to 1,000 deliveries, those of one queue in one step; an outcome for each."""
    return Outcomes(await desk.call(_settle_many, desk.room, data.settlements))


def _settle_many(room: Room, endings: list[Ending]) -> list[Outcome]:
    settlements = [_settlement(room, ending) for ending in endings]
    by_queue: dict[str, list[int]] = {}
    for number, settlement in enumerate(settlements):
        by_queue.setdefault(settlement.receipt.queue, []).append(number)
    outcomes = [Outcome.GONE] * len(settlements)
    for queue, numbers in by_queue.items():
        answers = room.engine.settle(queue, [settlements[number] for number in numbers])
        for number, outcome in zip(numbers, answers, strict=True):
            outcomes[number] = outcome
    return outcomes


def _settlement(room: Room, ending: Ending) -> Settlement:
    held, verb = read_receipt(ending.receipt), Verb(ending.verb)
    if verb is Verb.RETRY:
        failure = Failure(type=ending.type or "Failed", text=ending.error, traceback=ending.traceback)
        return _retry(room, held, failure, ending.after, ending.at)
    if ending.at is not None:
        raise InvalidInput("at: only a retry comes back at a moment")
    delay = 0 if ending.after is None else milliseconds(ending.after, "after")
    if verb is Verb.BURY:
        text = ending.error or "buried by its consumer"
        failure = Failure(type=ending.type or "Rejected", text=text, traceback=ending.traceback)
        return Settlement(held, Verb.BURY, failure=failure)
    return Settlement(held, verb, delay=delay if verb is Verb.RELEASE else 0)


def _retry(room: Room, held: Receipt, failure: Failure, after: Span | None, at: Moment | None) -> Settlement:
    """When it comes back: as told, else by the backoff of its queue for the attempt it is in."""
    if after is not None and at is not None:
        raise InvalidInput("a retry takes after or at, not both")
    if at is not None:
        return Settlement(held, Verb.RETRY, due=instant(at, "at"), failure=failure)
    if after is not None:
        return Settlement(held, Verb.RETRY, delay=milliseconds(after, "after"), failure=failure)
    (entry,) = room.engine.get(held.queue, [held.id])
    delay = retry_delay(room.policy(held.queue), entry.attempt if entry else 0)
    return Settlement(held, Verb.RETRY, delay=delay, failure=failure)


async def _settle(desk: Desk, settlement: Settlement) -> None:
    held = settlement.receipt
    (outcome,) = await desk.call(desk.room.engine.settle, held.queue, [settlement])
    _check(held, outcome)


def _check(held: Receipt, outcome: Outcome) -> None:
    if outcome is not Outcome.OK:
        what = "is settled already" if outcome is Outcome.GONE else "is no longer held by this delivery"
        raise LeaseLost(f"message {held.id} of {held.queue!r} {what}", outcome=outcome)


ROUTES = [claim, ack, retry, release, bury, extend, settle]
