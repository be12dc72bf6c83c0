"""Topics: publish to all who read, and read from a cursor of one's own."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request as Connection
from litestar import get, post
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Meta

from postroom.errors import InvalidInput
from postroom.http.auth import principal_of
from postroom.http.feeds import read_topic
from postroom.http.roles import Action
from postroom.http.service import AtDesk, named
from postroom.http.views import Request
from postroom.limits import AUDIT, check_limit
from postroom.readers import Readers, read_readers


class Publish(Request):
    """Entries as JSON values."""

    entries: Annotated[list[Any], Meta(min_length=1, max_length=1_000)]


class TopicEntry(msgspec.Struct):
    id: str
    at: int
    data: Any


class TopicPage(msgspec.Struct):
    """Entries behind a cursor; `missed` is what retention took before they were read."""

    entries: list[TopicEntry]
    cursor: str
    missed: int = 0


class TopicNames(msgspec.Struct):
    """Names in their order; the cursor is what to ask for as `after` next. `readers` are those that tell what
    they read, workers of Celery: whoever reads by other means is not counted."""

    topics: list[str]
    cursor: str | None = None
    readers: dict[str, Readers] = {}


@get("/topics", opt={"action": "topic.list"})
async def list_topics(desk: AtDesk, after: FromQuery[str] = "", limit: FromQuery[int] = 100) -> TopicNames:
    """The topics that something was published to, and their known readers; the audit has its own route."""
    names = await desk.call(desk.room.engine.topics, after=after, limit=limit)
    shown = [name for name in names if name != AUDIT]
    readers = await desk.work(read_readers, desk.room.engine, set(shown))
    return TopicNames(shown, names[-1] if len(names) == limit else None, readers)


@post("/topics/{topic:str}", opt={"action": "topic.publish"}, status_code=204)
async def publish(desk: AtDesk, topic: FromPath[str], data: JSONBody[Publish]) -> None:
    """Append to a topic. The audit is written by what is done, and by nobody else."""
    name = named(topic)
    if name == AUDIT:
        raise InvalidInput("topic: the audit takes no entries from outside")
    await desk.call(desk.room.engine.publish, name, [msgspec.json.encode(entry) for entry in data.entries])
    await desk.traffic("publish", "", len(data.entries), topic=name)


@get("/topics/{topic:str}", opt={"action": "topic.read"})
async def read(
    desk: AtDesk,
    request: Connection[Any, Any, Any],
    topic: FromPath[str],
    after: FromQuery[str | None] = None,
    limit: FromQuery[int] = 100,
    raw: FromQuery[bool] = False,
) -> TopicPage:
    """Entries behind a cursor; without one only the cursor to begin with, with "" from the oldest kept.

    A program that subscribes asks for them `raw`, which takes the right to work; else secrets are hidden.
    """
    if raw:
        principal_of(request).check(Action.WORK)
    name = named(topic)
    if name == AUDIT:
        raise InvalidInput("topic: the audit is read at /audit")
    check_limit(limit)
    page = await desk.call(read_topic, desk.room.engine, name, after, limit)
    values = [_value(each.data) for each in page.entries]
    shown = values if raw else await desk.work(desk.redaction.value, values)
    entries = [TopicEntry(each.id, each.at, value) for each, value in zip(page.entries, shown, strict=True)]
    return TopicPage(entries, page.cursor, page.missed)


def _value(data: bytes) -> Any:
    """As JSON, or as text where it is something else."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return data.decode("utf-8", "replace")


ROUTES = [list_topics, publish, read]
