"""Messages: put them, look at them, and what an operator does to one that nobody works on."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

import msgspec
from litestar import Request as HTTPRequest
from litestar import get, post
from litestar.params import FromPath, FromQuery, HeaderParameter, JSONBody, QueryParameter

from postroom.deadletters import origin
from postroom.errors import Conflict, InvalidInput
from postroom.http.auth import check_raw, principal_of
from postroom.http.looking import Sight, WithSight, lines
from postroom.http.service import AtDesk
from postroom.http.views import (
    MessageView,
    Moment,
    NewMessage,
    NewMessages,
    Page,
    Put,
    Puts,
    Request,
    Span,
)
from postroom.limits import KEPT_IDS
from postroom.logs import LogEntry, Stored
from postroom.model import Entry, State
from postroom.model import NewMessage as Drafted
from postroom.queue import Queue, state_of
from postroom.room import Room
from postroom.search import STATES, of_kind

#: A put that its client may repeat is remembered for so long.
_REMEMBER = "24h"
_LONGEST_KEY = 200
#: How many entries of a queue's history are looked through for one message.
_HISTORY = 10_000
#: How much of one stored value is shown (bytes).
_SHOWN = 65_536

AnyRequest = HTTPRequest[Any, Any, Any]

Key = Annotated[str | None, HeaderParameter(name="Idempotency-Key", required=False)]


class Reschedule(Request):
    delay: Span | None = None
    at: Moment | None = None


class Held(Request):
    """`deliveries` as it was seen: whoever claimed the message later is left alone."""

    deliveries: int | None = None


class Extend(Held):
    span: Span | None = None


class Cancel(Held):
    """`processing`: also from whoever works on it. `deliveries` means that worker, and no other."""

    processing: bool = False


class Bury(Held):
    reason: str = ""


class MessageHistory(msgspec.Struct):
    """What the queue's history tells of one message, oldest first; its attempts are with the message.

    Unless `complete`, the history begins after the message, or is longer than was looked through.
    """

    entries: list[LogEntry]
    complete: bool


class Letter(msgspec.Struct):
    """A dead letter, and which of its replays is meant."""

    queue: str
    id: str
    number: int


class Origin(msgspec.Struct):
    """The dead letter of which a message is a replay; null where none was found."""

    letter: Letter | None = None


class Match(msgspec.Struct):
    """A message that was searched for, without what it carries."""

    id: str
    queue: str
    kind: str
    state: State
    priority: int
    put_at: int
    attempt: int


class Matches(msgspec.Struct):
    """What a search found after it had looked at `scanned` messages."""

    messages: list[Match]
    scanned: int
    complete: bool
    cursor: str | None


class StoredPart(msgspec.Struct, kw_only=False):
    """One value and where it lies; `size` in bytes, of which the first 64 KB are shown, as text or hex."""

    place: str
    size: int
    text: str | None = None
    hex: str | None = None


class StoredView(msgspec.Struct):
    engine: str
    parts: list[StoredPart]


@post("/queues/{queue:str}/messages", opt={"action": "message.put"})
async def put_message(
    desk: AtDesk,
    queue: FromPath[str],
    data: JSONBody[NewMessage],
    key: Key = None,
    rate_key: FromQuery[str | None] = None,
) -> Put:
    """Put one message; when this is answered it is safe.

    With an `Idempotency-Key`, the same call again within 24 h is the same message; with another body it is
    refused (409), as long as that message is there.
    """
    where = desk.queue(queue)
    options = _options(data, where, key, 0)
    put = await desk.call(where.put, data.content(), rate_key=rate_key, **options)
    if key is not None and not put.created:
        await desk.call(_check_same, where, [where.message(data.content(), **options)])
    await desk.traffic("put", where.name, 1, ids=[put.id])
    return Put(put.id, put.created)


@post("/queues/{queue:str}/messages/batch", opt={"action": "message.put"})
async def put_messages(
    desk: AtDesk,
    queue: FromPath[str],
    data: JSONBody[NewMessages],
    key: Key = None,
    rate_key: FromQuery[str | None] = None,
) -> Puts:
    """Put up to 1,000 messages, all or none."""
    where = desk.queue(queue)
    puts = await desk.call(_put_many, where, data.messages, key, rate_key)
    await desk.traffic("put", where.name, len(puts), ids=[put.id for put in puts[:KEPT_IDS]])
    return Puts([Put(put.id, put.created) for put in puts])


def _put_many(queue: Queue, given: list[NewMessage], key: str | None, rate_key: str | None) -> list[Any]:
    messages: list[Drafted] = [
        queue.message(each.content(), **_options(each, queue, key, number))
        for number, each in enumerate(given)
    ]
    puts = list(queue.put_many(messages, rate_key=rate_key))
    if key is not None and not all(put.created for put in puts):
        _check_same(queue, messages)
    return puts


def _check_same(queue: Queue, messages: list[Drafted]) -> None:
    """Raises Conflict for a key that stands for something else: that would be lost, and nobody would know.

    Where a hook may have changed what is kept, nobody can tell.
    """
    there = [] if queue.room.hooks else queue.room.engine.get(queue.name, [each.id for each in messages])
    for entry, message in zip(there, messages, strict=False):
        if entry is not None and entry.message.body != message.body:
            raise Conflict(f"Idempotency-Key: it was used for another body, of message {entry.id}")


def _options(message: NewMessage, queue: Queue, key: str | None, number: int) -> dict[str, Any]:
    options = message.options()
    if key is None:
        return options
    if "id" in options or not 1 <= len(key) <= _LONGEST_KEY:
        raise InvalidInput(f"Idempotency-Key: at most {_LONGEST_KEY} characters, and not beside an id")
    whole = f"idempotency-key:{queue.name}\0{key}\0{number}"
    options["id"] = hashlib.sha256(whole.encode(), usedforsecurity=False).hexdigest()[:32]
    return {"remember": _REMEMBER, **options}


@get("/queues/{queue:str}/messages", opt={"action": "message.find"})
async def find_messages(
    desk: AtDesk,
    sight: WithSight,
    queue: FromPath[str],
    where: Annotated[str, QueryParameter(name="state")] = "ready",
    cursor: FromQuery[str | None] = None,
    limit: FromQuery[int] = 100,
    group: FromQuery[str | None] = None,
    correlation_id: FromQuery[str | None] = None,
) -> Page:
    """A page of one state in its own order; the dead also by group or correlation_id. Secrets are hidden."""
    narrow = {"group": group, "correlation_id": correlation_id}
    page = await desk.call(desk.queue(queue).find, where, cursor=cursor, limit=limit, **narrow)
    return Page(await sight.messages(page.entries), page.cursor)


@get("/queues/{queue:str}/messages/{id:str}", opt={"action": "message.show"})
async def show_message(
    desk: AtDesk, sight: WithSight, queue: FromPath[str], id: FromPath[str]
) -> MessageView:
    """One message, and where it stands. Secrets are hidden, unless it is asked for `raw`.

    Its `payload` is what it carries as people read it: of a Celery task, its call.
    """
    return await sight.message(await desk.call(desk.queue(queue).get, id))


@get("/queues/{queue:str}/messages/{id:str}/stored", opt={"action": "message.raw"})
async def stored_message(
    desk: AtDesk, request: AnyRequest, queue: FromPath[str], id: FromPath[str]
) -> StoredView:
    """What the store itself keeps of a message, and where. Nothing is hidden; the audit says who saw it."""
    where = desk.queue(queue)
    await desk.call(where.get, id)
    await desk.call(check_raw, principal_of(request), desk.room.engine, where.name, [id])
    kept = await desk.call(desk.room.engine.stored, where.name, id)
    return StoredView(desk.room.config.url.partition(":")[0], [_part(each) for each in kept])


def _part(stored: Stored) -> StoredPart:
    value = stored.value
    if not isinstance(value, bytes):
        return StoredPart(stored.place, len(str(value)), text=str(value)[:_SHOWN])
    try:
        return StoredPart(stored.place, len(value), text=value[:_SHOWN].decode())
    except UnicodeDecodeError:
        return StoredPart(stored.place, len(value), hex=value[:_SHOWN].hex())


@get("/messages", opt={"action": "message.find"})
async def search_messages(
    desk: AtDesk,
    kind: FromQuery[str],
    queue: FromQuery[str | None] = None,
    where: Annotated[str | None, QueryParameter(name="state")] = None,
    cursor: FromQuery[str | None] = None,
    limit: FromQuery[int] = 100,
) -> Matches:
    """Messages with this text in their kind, a task's name: in every queue and state, or in these.

    No engine has an index of kinds: they are looked at one by one, at most 100,000 or for 5 s. Unless the
    answer is `complete`, go on from its `cursor`.
    """
    states = STATES if where is None else (state_of(where),)
    queues = None if queue is None else [(await desk.call(desk.queue(queue).info)).name]
    match = of_kind(kind)
    found = await desk.work(desk.room.search, match, queues, states=states, cursor=cursor, limit=limit)
    return Matches([_match(entry) for entry in found.entries], found.scanned, found.complete, found.cursor)


def _match(entry: Entry) -> Match:
    message = entry.message
    return Match(
        message.id, message.queue, message.kind, entry.state, message.priority, message.put_at, entry.attempt
    )


@get("/messages/{id:str}", opt={"action": "message.show"})
async def where_message(desk: AtDesk, sight: WithSight, id: FromPath[str]) -> Page:
    """A message by its id alone: every queue is asked, and it may be in several."""
    return Page(await sight.messages(await desk.work(_where, desk.room, id)))


def _where(room: Room, id: str) -> list[Entry]:
    found = (room.engine.get(info.name, [id])[0] for info in room.queues())
    return [entry for entry in found if entry is not None]


@get("/queues/{queue:str}/messages/{id:str}/history", opt={"action": "message.show"})
async def message_history(desk: AtDesk, queue: FromPath[str], id: FromPath[str]) -> MessageHistory:
    """What happened to one message, as far as the queue's history names it."""
    found = await desk.work(_history, desk.queue(queue), id)
    return MessageHistory(lines(desk.redaction, found.entries), found.complete)


def _history(queue: Queue, id: str) -> MessageHistory:
    queue.get(id)
    found, after, looked, missed = list[LogEntry](), "", 0, 0
    while looked < _HISTORY:
        log = queue.history(after, 1_000)
        found += [entry for entry in log.entries if id in entry.ids]
        after, looked, missed = log.cursor, looked + len(log.entries), missed + log.missed
        if not log.entries:
            break
    return MessageHistory(found, looked < _HISTORY and not missed)


@get("/queues/{queue:str}/messages/{id:str}/origin", opt={"action": "message.show"})
async def message_origin(desk: AtDesk, queue: FromPath[str], id: FromPath[str]) -> Origin:
    """The dead letter that a message is a replay of, while that is kept: looked for, within bounds."""
    return Origin(await desk.work(_letter, desk.room, desk.queue(queue), id))


def _letter(room: Room, queue: Queue, id: str) -> Letter | None:
    message = queue.get(id).message
    found = origin(room.engine, message, [info.name for info in room.queues()])
    if found is None:
        return None
    return Letter(found.message.queue, found.id, found.replayed_as.index(id) + 1)


@post("/queues/{queue:str}/messages/{id:str}/cancel", opt={"action": "message.cancel"}, status_code=204)
async def cancel_message(
    desk: AtDesk, queue: FromPath[str], id: FromPath[str], data: JSONBody[Cancel | None] = None
) -> None:
    """Take a waiting message out; with `processing` or `deliveries`, also from whoever works on it."""
    data = data or Cancel()
    cancel = desk.queue(queue).cancel
    await desk.call(cancel, id, processing=data.processing, deliveries=data.deliveries)


@post(
    "/queues/{queue:str}/messages/{id:str}/reschedule", opt={"action": "message.reschedule"}, status_code=200
)
async def reschedule_message(
    desk: AtDesk, queue: FromPath[str], id: FromPath[str], data: JSONBody[Reschedule]
) -> MessageView:
    """Give a waiting message another due time."""
    where = desk.queue(queue)
    await desk.call(where.reschedule, id, delay=data.delay, at=data.at)
    (shown,) = await Sight(desk).messages([await desk.call(where.get, id)])
    return shown


@post("/queues/{queue:str}/messages/{id:str}/run-now", opt={"action": "message.run_now"}, status_code=204)
async def run_message_now(desk: AtDesk, queue: FromPath[str], id: FromPath[str]) -> None:
    """Make a scheduled message ready."""
    await desk.call(desk.queue(queue).run_now, id)


@post("/queues/{queue:str}/messages/{id:str}/release", opt={"action": "message.release"}, status_code=204)
async def release_message(
    desk: AtDesk, queue: FromPath[str], id: FromPath[str], data: JSONBody[Held | None] = None
) -> None:
    """Take a message from whoever works on it, and put it back to its place; does not count."""
    await desk.call(desk.queue(queue).release, id, deliveries=data.deliveries if data else None)


@post("/queues/{queue:str}/messages/{id:str}/bury", opt={"action": "message.bury"}, status_code=204)
async def bury_message(
    desk: AtDesk, queue: FromPath[str], id: FromPath[str], data: JSONBody[Bury | None] = None
) -> None:
    """Take a message from whoever works on it, and make it a dead letter."""
    data = data or Bury()
    await desk.call(desk.queue(queue).bury, id, data.reason, deliveries=data.deliveries)


@post("/queues/{queue:str}/messages/{id:str}/extend", opt={"action": "message.extend"}, status_code=204)
async def extend_message(
    desk: AtDesk, queue: FromPath[str], id: FromPath[str], data: JSONBody[Extend | None] = None
) -> None:
    """Give whoever works on a message more time."""
    data = data or Extend()
    await desk.call(desk.queue(queue).extend, id, data.span, deliveries=data.deliveries)


ROUTES = [
    put_message, put_messages, find_messages, show_message, stored_message, search_messages, where_message,
    message_history, message_origin, cancel_message, reschedule_message, run_message_now, release_message,
    bury_message, extend_message,
]  # fmt: skip
