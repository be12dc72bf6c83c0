"""Queues: how they stand, what they promise, and what an operator does to a whole one."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import delete, get, post, put
from litestar.params import FromPath, FromQuery, JSONBody

from postroom import audit
from postroom.engine import QueueInfo
from postroom.errors import InvalidInput
from postroom.http.looking import lines
from postroom.http.problems import unknown_field
from postroom.http.service import AtDesk, named
from postroom.http.views import Backlogs, BacklogView, Count, Level, QueueList, QueueView, Request, Span
from postroom.limits import MAX_BATCH, check_between, check_limit
from postroom.logs import LogEntry
from postroom.policy import SETTINGS, Policy
from postroom.room import Room
from postroom.stats import QueueStats

#: Queues whose backlog is told in one answer: as many as a large screen has rows, because each is a look.
_MOST_BACKLOGS = 100


class Pause(Request):
    """With a `span` such as "15m" it resumes by itself after it."""

    reason: str = ""
    span: Span | None = None


class History(msgspec.Struct):
    """What happened to a queue behind a cursor; `missed` is what its bound took before it was read."""

    entries: list[LogEntry]
    cursor: str
    missed: int = 0


def _view(room: Room, info: QueueInfo) -> QueueView:
    stats = room.engine.stats(info.name)
    return QueueView(
        queue=info.name,
        stats=stats,
        paused=info.paused,
        pause_reason=info.pause_reason,
        paused_until=info.paused_until,
        policy=info.policy.to_text(),
    )


@get("/queues", opt={"action": "queue.list"})
async def list_queues(
    desk: AtDesk, after: FromQuery[str] = "", limit: FromQuery[int] = MAX_BATCH
) -> QueueList:
    """The queues by name, behind the cursor `after`."""
    check_limit(limit)
    return await desk.call(_page, desk.room, after, limit)


def _page(room: Room, after: str, limit: int) -> QueueList:
    there = sorted((info for info in room.queues() if info.name > after), key=lambda info: info.name)
    cursor = there[limit - 1].name if len(there) > limit else None
    return QueueList([_view(room, info) for info in there[:limit]], cursor)


@get("/queues/{queue:str}", opt={"action": "queue.show"})
async def show_queue(desk: AtDesk, queue: FromPath[str]) -> QueueView:
    """One queue; its policy as it holds, each setting with its origin."""
    return await desk.call(_whole, desk.room, named(queue))


def _whole(room: Room, name: str) -> QueueView:
    found = _view(room, room.queue(name).info())
    configured = room.config.settings_of(name)
    for setting, value in found.policy.items():
        given = configured.get(setting)
        found.origins[setting] = given.origin if given and given.value == value else "queue"
    return found


@get("/queues/{queue:str}/stats", opt={"action": "queue.stats"})
async def queue_stats(desk: AtDesk, queue: FromPath[str]) -> QueueStats:
    """How a queue stands, from counters; one that does not exist is all zero."""
    return await desk.call(desk.queue(queue).stats)


@get("/backlogs", opt={"action": "queue.backlog"})
async def backlogs(desk: AtDesk, queue: FromQuery[list[str]]) -> Backlogs:
    """What waits in these queues (`queue`, up to 100 times): ready by priority, and scheduled that retries.
    In each a bounded look; one that does not exist is empty."""
    check_between("queues", len(queue), 1, _MOST_BACKLOGS)
    return await desk.call(lambda: Backlogs([_backlog(desk.room, name) for name in queue]))


def _backlog(room: Room, name: str) -> BacklogView:
    found = room.queue(name).backlog()
    return BacklogView(
        queue=name,
        levels=[Level(priority, count) for priority, count in found.levels.items()],
        levels_whole=found.levels_whole,
        retrying=found.retrying,
        retrying_whole=found.retrying_whole,
    )


@put("/queues/{queue:str}", opt={"action": "queue.declare"})
async def declare_queue(desk: AtDesk, queue: FromPath[str], data: JSONBody[dict[str, Any]]) -> QueueView:
    """Create a queue or give it this policy, as a whole: settings as in postroom.toml."""
    for name in data:
        if name not in SETTINGS:
            raise InvalidInput(unknown_field(name, sorted(SETTINGS)))
    name, room = named(queue), desk.room
    policy = _policy(data)
    return await desk.call(lambda: _view(room, room.queue(name, policy).info()))


def _policy(settings: dict[str, Any]) -> Policy:
    try:
        return Policy(**settings)
    except (TypeError, AttributeError) as error:  # a list where a text is expected
        raise InvalidInput(f"policy: {error}") from None


@post("/queues/{queue:str}/pause", opt={"action": "queue.pause"}, status_code=200)
async def pause_queue(desk: AtDesk, queue: FromPath[str], data: JSONBody[Pause | None] = None) -> QueueView:
    """Stop claims, for good or for a `span`; everything else goes on."""
    return await desk.call(_paused, desk.room, named(queue), data or Pause())


def _paused(room: Room, queue: str, pause: Pause) -> QueueView:
    room.queue(queue).info()
    room.queue(queue).pause(pause.reason, pause.span)
    return _view(room, room.queue(queue).info())


@post("/queues/{queue:str}/resume", opt={"action": "queue.resume"}, status_code=200)
async def resume_queue(desk: AtDesk, queue: FromPath[str]) -> QueueView:
    """Allow claims again."""
    return await desk.call(_resumed, desk.room, named(queue))


def _resumed(room: Room, queue: str) -> QueueView:
    room.queue(queue).info()
    room.queue(queue).resume()
    return _view(room, room.queue(queue).info())


@post("/queues/{queue:str}/purge", opt={"action": "queue.purge"}, status_code=200)
async def purge_queue(desk: AtDesk, queue: FromPath[str], dry_run: FromQuery[bool] = False) -> Count:
    """Drop what waits, ready and scheduled; what is processing or dead stays."""
    if dry_run:
        audit.nothing_to_note()
    return Count(await desk.call(_purged, desk.room, named(queue), dry_run))


def _purged(room: Room, queue: str, dry_run: bool) -> int:
    room.queue(queue).info()
    return room.engine.stats(queue).depth if dry_run else room.queue(queue).purge()


@delete("/queues/{queue:str}", opt={"action": "queue.drop"}, status_code=200)
async def drop_queue(desk: AtDesk, queue: FromPath[str], force: FromQuery[bool] = False) -> Count:
    """Remove a queue; refused while anything is in it, dead letters included, unless forced."""
    return Count(await desk.call(_dropped, desk.room, named(queue), force))


def _dropped(room: Room, queue: str, force: bool) -> int:
    room.queue(queue).info()
    return room.queue(queue).drop(force=force)


@get("/queues/{queue:str}/history", opt={"action": "queue.history"})
async def queue_history(
    desk: AtDesk, queue: FromPath[str], after: FromQuery[str] = "", limit: FromQuery[int] = 100
) -> History:
    """What happened to a queue: retries, reclaims, deaths, and what operators did."""
    log = await desk.call(desk.queue(queue).history, after, limit)
    return History(lines(desk.redaction, log.entries), log.cursor, log.missed)


ROUTES = [
    list_queues, show_queue, queue_stats, backlogs, declare_queue, pause_queue, resume_queue, purge_queue,
    drop_queue, queue_history,
]  # fmt: skip
