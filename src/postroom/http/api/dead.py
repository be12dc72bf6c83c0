"""Dead letters: by dead-letter name or queue ("-": all), their groups, what is known, what is done."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta

from postroom import audit
from postroom.deadletters import DeadLetters, Filter, GroupView, Incident
from postroom.deadletters.bulk import Result
from postroom.deadletters.finding import Bound
from postroom.errors import InvalidInput
from postroom.http.looking import WithSight, texts, values
from postroom.http.service import AtDesk, Desk, named
from postroom.http.views import Request, Span
from postroom.jobs import Job, Jobs

EVERYWHERE = "-"
#: Letters of one page, and how many one request looks at for them, and for how long (seconds).
_MOST, _ROWS, _SECONDS = 1_000, 100_000, 2.0

Condition = Annotated[list[str] | None, QueryParameter(name="where")]


class Letters(msgspec.Struct):
    """Letters with everything about them; `scanned` were looked at. Unless `complete`, it stopped, and
    `stopped_by` says at what: as many as were asked for, or a bound of one search. Go on from `cursor`."""

    letters: list[dict[str, Any]]
    scanned: int
    complete: bool
    cursor: str | None = None
    stopped_by: Bound | None = None


class GroupList(msgspec.Struct):
    groups: list[GroupView]
    complete: bool


class IncidentList(msgspec.Struct):
    incidents: list[Incident]


class Chosen(Request):
    """Which letters: by conditions as in `postroom dead`, such as "class=timeout", or by `ids`."""

    where: Annotated[list[str], Meta(max_length=30)] | None = None
    ids: Annotated[list[str], Meta(min_length=1, max_length=1_000)] | None = None
    dry_run: bool = False

    def choice(self) -> Filter | list[str]:
        """To choose nothing is no way to choose everything: that is where=[]."""
        if (self.where is None) == (self.ids is None):
            raise InvalidInput("choose by where or by ids")
        return Filter.parse(self.where) if self.where is not None else self.ids or []


class DiscardChosen(Chosen):
    """Not now but `after` a span of at most a week: until then, to cancel the job is to undo it."""

    after: Span | None = None


class ReplayChosen(Chosen):
    """Into another queue (`to`), at most so fast (`rate`), one first (`canary`), once more (`again`)."""

    to: str | None = None
    rate: str | None = None
    canary: bool = False
    canary_timeout: str = "1m"
    again: bool = False


class Note(Request):
    text: str = ""
    status: str | None = None
    bucket: str | None = None
    cause: str | None = None
    fix: str | None = None
    link: str | None = None


class ReplayOne(Request):
    """Replay one letter, perhaps with another body. `number` is the replays seen + 1: then a repeated call
    makes no second message. `dry_run` only asks whether it could be, with that body."""

    body: Any = None
    number: int | None = None
    dry_run: bool = False


class Replayed(msgspec.Struct):
    """Its new id; "" after a dry run."""

    replayed_as: str


def letters_of(desk: Desk, raw: str) -> DeadLetters:
    name = named(raw)
    return DeadLetters(desk.room, None if name == EVERYWHERE else name)


def checked(limit: int) -> dict[str, float]:
    """How much one request may look at, if it does not ask for too much. Raises InvalidInput."""
    if limit > _MOST:
        raise InvalidInput(f"limit: at most {_MOST:,}")
    return {"max_rows": _ROWS, "max_seconds": _SECONDS}


def changes_of(data: Note) -> dict[str, str | None]:
    return {key: getattr(data, key) for key in ("status", "bucket", "cause", "fix", "link")}


@get("/dead/{name:str}", opt={"action": "dead.list"})
async def list_letters(
    desk: AtDesk,
    sight: WithSight,
    name: FromPath[str],
    where: Condition = None,
    cursor: FromQuery[str | None] = None,
    limit: FromQuery[int] = 100,
) -> Letters:
    """Letters that match, oldest first within each queue; `where=class=timeout` may be repeated."""
    bounds: dict[str, Any] = {**checked(limit), "as_seen": sight.as_seen}
    filter = Filter.parse(where or [])
    found = await desk.work(letters_of(desk, name).find, filter, limit=limit, cursor=cursor, **bounds)
    letters = await sight.letters(found.letters)
    return Letters(letters, found.scanned, found.complete, found.cursor, found.stopped_by)


@get("/dead/{name:str}/letters/{id:str}", opt={"action": "dead.show"})
async def show_letter(
    desk: AtDesk, sight: WithSight, name: FromPath[str], id: FromPath[str]
) -> dict[str, Any]:
    """The letter of this message id, or the newest of this task or correlation id.

    Its `payload` is what `POST …/replay` takes as `body`, edited, or says why there is none to edit.
    """
    letter = await desk.work(letters_of(desk, name).get, named(id))
    return await sight.letter(letter)


@get("/dead/{name:str}/groups", opt={"action": "dead.groups"})
async def list_groups(desk: AtDesk, name: FromPath[str], limit: FromQuery[int] = 100) -> GroupList:
    """What failed alike, the largest groups first."""
    found = await desk.work(letters_of(desk, name).groups, limit)
    return GroupList([texts(desk.redaction, each) for each in found.groups], found.complete)


@get("/dead/{name:str}/incidents", opt={"action": "dead.groups"})
async def list_incidents(desk: AtDesk, name: FromPath[str]) -> IncidentList:
    """The incident log."""
    found = await desk.work(letters_of(desk, name).incidents)
    return IncidentList([texts(desk.redaction, each) for each in found])


@post("/dead/{name:str}/groups/{group:str}/note", opt={"action": "dead.note"}, status_code=200)
async def note_group(
    desk: AtDesk, name: FromPath[str], group: FromPath[str], data: JSONBody[Note]
) -> Incident:
    """Note what is known about a group: a text, a status, a bucket, the cause, the fix, a link."""
    noted = await desk.work(letters_of(desk, name).note, named(group), data.text, **changes_of(data))
    return texts(desk.redaction, noted)


@post("/dead/{name:str}/replay", opt={"action": "dead.replay"}, status_code=202)
async def replay_letters(
    desk: AtDesk, name: FromPath[str], data: JSONBody[ReplayChosen]
) -> Job | dict[str, Any]:
    """Put letters again, as a job; a dry run is answered at once with what it would do."""
    options: dict[str, Any] = {
        key: getattr(data, key) for key in ("to", "rate", "canary", "canary_timeout", "again")
    }
    letters, choice = letters_of(desk, name), data.choice()
    if data.dry_run:
        plan = await desk.work(letters.replay, choice, dry_run=True, **options)
        return plain(desk, plan)
    return await _job(desk, "replay", letters.name, choice, options)


@post("/dead/{name:str}/discard", opt={"action": "dead.discard"}, status_code=202)
async def discard_letters(
    desk: AtDesk, name: FromPath[str], data: JSONBody[DiscardChosen]
) -> Job | dict[str, Any]:
    """Let go of letters, as a job; a dry run is answered at once with what it would do."""
    letters, choice = letters_of(desk, name), data.choice()
    if data.dry_run:
        return plain(desk, await desk.work(letters.discard, choice, dry_run=True))
    return await _job(desk, "discard", letters.name, choice, {"after": data.after})


def plain(desk: Desk, plan: Result) -> dict[str, Any]:
    audit.nothing_to_note()
    told: dict[str, Any] = desk.redaction.texts(plan.as_dict())
    return told


async def _job(
    desk: Desk, action: Any, name: str | None, choice: Filter | list[str], options: dict[str, Any]
) -> Job:
    made = await desk.call(Jobs(desk.room).make, action, name, choice, **options)
    desk.service.runner.poke()
    return values(desk.redaction, made)


@post("/queues/{queue:str}/messages/{id:str}/replay", opt={"action": "dead.replay"}, status_code=200)
async def replay_one(
    desk: AtDesk, queue: FromPath[str], id: FromPath[str], data: JSONBody[ReplayOne | None] = None
) -> Replayed:
    """Put one dead letter again, as it was or with another body."""
    data = data or ReplayOne()
    options = {"body": data.body, "number": data.number, "dry_run": data.dry_run}
    new = await desk.call(desk.queue(queue).replay, id, **options)
    if data.dry_run:
        audit.nothing_to_note()
    return Replayed(new)


@post("/queues/{queue:str}/messages/{id:str}/discard", opt={"action": "dead.discard"}, status_code=204)
async def discard_one(desk: AtDesk, queue: FromPath[str], id: FromPath[str]) -> None:
    """Let go of one dead letter."""
    await desk.call(desk.queue(queue).discard, id)


ROUTES = [
    list_letters, show_letter, list_groups, list_incidents, note_group, replay_letters, discard_letters,
    replay_one, discard_one,
]  # fmt: skip
