"""Services of events: how each stands, and its archive by the verbs of dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from litestar import get, post
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.response import Stream

from postroom import audit
from postroom.deadletters import Filter, Incident, Result
from postroom.errors import Conflict, InvalidInput, NotFound
from postroom.http.api.dead import (
    Chosen,
    Condition,
    DiscardChosen,
    GroupList,
    IncidentList,
    Letters,
    Note,
    Replayed,
    changes_of,
    checked,
    plain,
)
from postroom.http.api.transfer import MEDIA, streamed
from postroom.http.archives import Visited
from postroom.http.looking import WithSight, texts, values
from postroom.http.service import AtDesk, Desk, named
from postroom.http.views import Request
from postroom.jobs import Job, Jobs
from postroom.services import ServiceLetters, Standing


class ServiceView(msgspec.Struct):
    """A service that is served here; whether what fails for good in it is kept is `archive`."""

    service: str
    broker: Literal["rabbitmq", "engine"]
    archive: bool


class ServiceList(msgspec.Struct):
    services: list[ServiceView]


class ArchivedLetters(Letters):
    """As letters of a room. `unread` are beyond the oldest 20,000 (or 64 MB) that are looked at."""

    unread: int = 0


class ReplayArchived(Chosen):
    """To this service and no other; at most so fast (`rate`), one first (`canary`, not on RabbitMQ)."""

    rate: str | None = None
    canary: bool = False
    canary_timeout: str = "1m"
    again: bool = False


class ReplayOneArchived(Request):
    """Perhaps with another body; `again`: also if it was replayed before."""

    body: Any = None
    again: bool = False


def visited(desk: Desk, raw: str) -> Visited:
    return desk.service.archives[named(raw)]


@get("/services", opt={"action": "service.list"})
async def list_services(desk: AtDesk) -> ServiceList:
    """The services of events that this server was given. No broker is asked."""
    return ServiceList(
        [
            ServiceView(name, "rabbitmq" if each.on_rabbitmq else "engine", each.keeps_letters)
            for name, each in desk.service.archives.services.items()
        ]
    )


@get("/services/{service:str}/stats", opt={"action": "service.stats"})
async def service_stats(desk: AtDesk, service: FromPath[str]) -> Standing:
    """How many events wait: for handlers, for their time, and in the archive. At most 2 s old.

    What somebody works on in an archive on RabbitMQ is not counted meanwhile.
    """
    return await visited(desk, service).stand()


@get("/services/{service:str}/archive", opt={"action": "archive.list"})
async def list_archive(
    desk: AtDesk,
    sight: WithSight,
    service: FromPath[str],
    where: Condition = None,
    cursor: FromQuery[str | None] = None,
    limit: FromQuery[int] = 100,
) -> ArchivedLetters:
    """Letters that match, oldest first. On RabbitMQ at most 5 s old."""
    bounds: dict[str, Any] = {**checked(limit), "as_seen": sight.as_seen}
    filter = Filter.parse(where or [])
    letters = await visited(desk, service).seen()
    found = await desk.work(letters.find, filter, limit=limit, cursor=cursor, **bounds)
    seen = await sight.letters(found.letters)
    return ArchivedLetters(
        seen, found.scanned, found.complete, found.cursor, found.stopped_by, letters.unread
    )


@get("/services/{service:str}/archive/letters/{id:str}", opt={"action": "archive.show"})
async def show_archived(
    desk: AtDesk, sight: WithSight, service: FromPath[str], id: FromPath[str]
) -> dict[str, Any]:
    """The letter of this message id, or the newest of this task or event id."""
    letters = await visited(desk, service).seen()
    letter = await desk.work(letters.get, named(id))
    return (await sight.letters([letter]))[0]


@get("/services/{service:str}/archive/groups", opt={"action": "archive.groups"})
async def list_archive_groups(desk: AtDesk, service: FromPath[str], limit: FromQuery[int] = 100) -> GroupList:
    """What failed alike, the largest groups first."""
    letters = await visited(desk, service).seen()
    found = await desk.work(letters.groups, limit)
    return GroupList([texts(desk.redaction, each) for each in found.groups], found.complete)


@get("/services/{service:str}/archive/incidents", opt={"action": "archive.groups"})
async def list_archive_incidents(desk: AtDesk, service: FromPath[str]) -> IncidentList:
    """The incident log."""
    letters = await visited(desk, service).seen()
    return IncidentList([texts(desk.redaction, each) for each in await desk.work(letters.incidents)])


@get("/services/{service:str}/archive/export", opt={"action": "archive.export"}, media_type=MEDIA)
async def export_archive(desk: AtDesk, service: FromPath[str], where: Condition = None) -> Stream:
    """Letters that match as they are, a line of JSON each; raw, and the audit says so before the first."""
    filter, name = Filter.parse(where or []), named(service)
    letters = await visited(desk, service).seen()
    pages = await desk.work(letters.pages, filter)
    told: dict[str, Any] = {"service": name, "export": filter.as_dict()}
    await desk.call(audit.note, desk.room.engine, "raw", letters.name or "", **told)
    return Stream(streamed(desk, pages), media_type=MEDIA)


@post(
    "/services/{service:str}/archive/groups/{group:str}/note", opt={"action": "archive.note"}, status_code=200
)
async def note_archived_group(
    desk: AtDesk, service: FromPath[str], group: FromPath[str], data: JSONBody[Note]
) -> Incident:
    """Note what is known about a group: a text, a status, a bucket, the cause, the fix, a link."""
    letters = await visited(desk, service).seen()
    noted = await desk.work(letters.note, named(group), data.text, **changes_of(data))
    return texts(desk.redaction, noted)


@post("/services/{service:str}/archive/replay", opt={"action": "archive.replay"}, status_code=202)
async def replay_archived(
    desk: AtDesk, service: FromPath[str], data: JSONBody[ReplayArchived]
) -> Job | dict[str, Any]:
    """Have this service handle them again, as a job; a dry run is answered at once.

    Out of an archive on RabbitMQ a letter is gone when it is replayed.
    """
    there, choice = visited(desk, service), data.choice()
    if data.canary and there.on_rabbitmq:
        raise InvalidInput("canary: RabbitMQ tells nobody whether an event was handled; replay one by its id")
    options: dict[str, Any] = {
        key: getattr(data, key) for key in ("rate", "canary", "canary_timeout", "again")
    }
    if data.dry_run:
        letters = await there.seen()
        return plain(desk, await desk.work(letters.replay, choice, dry_run=True, **options))
    return await _job(desk, "replay", there, choice, options)


@post("/services/{service:str}/archive/discard", opt={"action": "archive.discard"}, status_code=202)
async def discard_archived(
    desk: AtDesk, service: FromPath[str], data: JSONBody[DiscardChosen]
) -> Job | dict[str, Any]:
    """Let go of them, as a job; a dry run is answered at once."""
    there, choice = visited(desk, service), data.choice()
    if data.dry_run:
        letters = await there.seen()
        return plain(desk, await desk.work(letters.discard, choice, dry_run=True))
    return await _job(desk, "discard", there, choice, {"after": data.after})


async def _job(
    desk: Desk, action: Any, there: Visited, choice: Filter | list[str], options: dict[str, Any]
) -> Job:
    if not there.keeps_letters:
        raise InvalidInput(f"{there.service} keeps no archive")
    make = Jobs(desk.room).make
    name = f"archive of {there.service}"
    made = await desk.call(make, action, name, choice, service=there.service, **options)
    desk.service.archives.runner.poke()
    return values(desk.redaction, made)


@post(
    "/services/{service:str}/archive/letters/{id:str}/replay",
    opt={"action": "archive.replay"},
    status_code=200,
)
async def replay_one_archived(
    desk: AtDesk,
    service: FromPath[str],
    id: FromPath[str],
    data: JSONBody[ReplayOneArchived | None] = None,
) -> Replayed:
    """Have this service handle one letter again, as it was or with another body."""
    given = data or ReplayOneArchived()
    edit = None if given.body is None else lambda _: given.body

    def replay(letters: ServiceLetters) -> Result:
        return letters.replay([letters.get(named(id)).id], edit=edit, again=given.again)

    return Replayed((await _one(desk, service, replay)).last)


@post(
    "/services/{service:str}/archive/letters/{id:str}/discard",
    opt={"action": "archive.discard"},
    status_code=204,
)
async def discard_one_archived(desk: AtDesk, service: FromPath[str], id: FromPath[str]) -> None:
    """Let go of one letter."""
    await _one(desk, service, lambda letters: letters.discard([letters.get(named(id)).id]))


async def _one(desk: Desk, service: str, act: Callable[[ServiceLetters], Result]) -> Result:
    """Do it in the name of who asks, and say so if nothing came of it."""
    there = visited(desk, service)

    def noted(letters: ServiceLetters) -> Result:
        if there.on_rabbitmq:
            return act(letters)
        with audit.watched(audit.why()):  # noted in the service's own store: this room has to know it too
            return act(letters)

    with audit.acting(desk.actor):
        result = await there.act(noted)
    if not result.done:
        raise _refused(result)
    return result


def _refused(result: Result) -> Exception:
    if result.already:
        return Conflict("it was replayed before; again replays it once more")
    for refusal in result.refusals:
        return NotFound(refusal.reason) if refusal.missing else Conflict(refusal.reason)
    return Conflict(result.stopped or "nothing was done")


ROUTES = [
    list_services, service_stats, list_archive, show_archived, list_archive_groups, list_archive_incidents,
    export_archive, note_archived_group, replay_archived, discard_archived, replay_one_archived,
    discard_one_archived,
]  # fmt: skip
