"""The whole room: how it stands, its counters, its SLA, its configuration, its audit, its keeper."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import get, post
from litestar.params import FromQuery, JSONBody
from msgspec import Meta

from postroom import audit, charts, upcoming
from postroom.audit import Act
from postroom.config import Config, Layer
from postroom.doctor import examine
from postroom.duration import milliseconds
from postroom.findings import Level
from postroom.http.looking import acts, texts
from postroom.http.roles import rights
from postroom.http.service import AtDesk
from postroom.http.views import Request
from postroom.keeper import Keeper, leader
from postroom.limits import MAX_BATCH
from postroom.room import Room
from postroom.settings import without_secrets
from postroom.stats import QueueStats
from postroom.telemetry import Wait, read_waits

_HOUR, _MINUTE = 3_600_000, 60_000


class Standing(msgspec.Struct, kw_only=True):
    """How the room stands; `now` is the clock of the store, by which everything is due."""

    now: int
    ok: bool
    error: str
    latency: float
    shutdown: bool
    #: The first 1,000 by name, and how many more there are.
    queues: list[QueueStats]
    left_out: int
    #: What kind of store, whether a keeper leads, and how often it sweeps at least (ms).
    engine: str
    keeper: bool
    sweep_interval: int
    #: Who leads, and when it sweeps next; one of an older release does not say.
    keeper_name: str = ""
    next_sweep: int | None = None
    #: Which room this is to its people, such as "production", and the colour of that.
    environment: str = ""
    environment_colour: str = "grey"
    redis_active: bool | None = None
    spooled: int = 0
    memory_used: int | None = None
    memory_limit: int | None = None


class Samples(msgspec.Struct, kw_only=True):
    """Columns that belong together: at each moment `at`, how a queue stood, and how many a second since
    the one before. `waits` are the last hour by the minute, as far as telemetry is on."""

    queue: str
    now: int
    step: int
    at: list[int]
    standing: dict[str, list[int]]
    rates: dict[str, list[float | None]]
    waits: list[Wait]


class Trends(msgspec.Struct, kw_only=True):
    """How many a second each queue had done, over the last hour by the minute; those that are sampled."""

    step: int
    done: dict[str, list[float | None]]


class Coming(msgspec.Struct, kw_only=True):
    """From `now` until `until`, in spans of equal length, so many are due in each; so many were due before
    (`overdue`) and are due `later`. Unless `whole`, there are more than could be counted."""

    now: int
    until: int
    counts: list[int]
    overdue: int
    later: int
    whole: bool


class Checked(msgspec.Struct):
    """One thing that was looked at: how it is, and what to do unless it is fine."""

    check: str
    level: Level
    text: str
    advice: str = ""


class Acts(msgspec.Struct):
    acts: list[Act]
    cursor: str
    missed: int = 0


class Sweep(Request):
    """These queues; without any, all."""

    queues: Annotated[list[str], Meta(max_length=1_000)] | None = None


@get("/stats", opt={"action": "counters.show"})
async def room_stats(desk: AtDesk) -> Standing:
    """Every queue with its counters, whether the store answers, and how full its memory is."""
    return await desk.call(_standing, desk.room)


def _standing(room: Room) -> Standing:
    stats = room.stats(MAX_BATCH)
    memory = stats.memory
    leads = leader(room.engine) if stats.health.ok else None
    return Standing(
        now=room.engine.now(),
        ok=stats.health.ok,
        error=stats.health.error,
        latency=stats.health.latency,
        shutdown=stats.shutdown,
        queues=stats.queues,
        left_out=stats.left_out,
        engine=room.config.url.partition(":")[0],
        keeper=leads is not None,
        keeper_name=leads.name if leads else "",
        next_sweep=leads.next_sweep if leads else None,
        sweep_interval=room.config.sweep_interval,
        environment=room.config.http.environment or "",
        environment_colour=room.config.http.environment_colour,
        redis_active=stats.redis_active,
        spooled=stats.spooled,
        memory_used=memory.used if memory else None,
        memory_limit=memory.maxmemory if memory else None,
    )


@get("/sla", opt={"action": "sla.show"})
async def room_sla(desk: AtDesk, over: FromQuery[str] = "1h") -> list[dict[str, Any]]:
    """How long first attempts waited, against what each queue promises; measured with telemetry."""
    found = await desk.call(desk.room.sla, over)
    return [{**msgspec.to_builtins(each), "met": each.met} for each in found]


@get("/samples", opt={"action": "samples.show"})
async def samples(desk: AtDesk, queue: FromQuery[str] = charts.ROOM, over: FromQuery[str] = "1h") -> Samples:
    """How a queue, or all of them, stood over time: for charts. Every 10 s for an hour, every minute for
    half a day, every hour for a month; a keeper samples."""
    span = milliseconds(over, "over")
    return await desk.call(_samples, desk.room, queue, span)


def _samples(room: Room, queue: str, span: int) -> Samples:
    chart = charts.read(room.engine, queue and room.queue(queue).info().name, span)
    columns = zip(*(point.standing for point in chart.points), strict=True)
    standing = dict(zip(charts.STANDING, map(list, columns), strict=False))
    return Samples(
        queue=queue,
        now=room.engine.now(),
        step=chart.step,
        at=[point.at for point in chart.points],
        standing={name: standing.get(name, []) for name in charts.STANDING},
        rates={name: chart.rates(name) for name in charts.COUNTED},
        waits=read_waits(room.engine, queue or None),
    )


@get("/samples/queues", opt={"action": "samples.show"})
async def trends(desk: AtDesk) -> Trends:
    """What every queue did over the last hour, by the minute: for a table of them."""
    return await desk.call(_trends, desk.room)


def _trends(room: Room) -> Trends:
    names = sorted(info.name for info in room.queues())[: charts.MOST]
    kept = {name: charts.read(room.engine, name, _HOUR, step=_MINUTE) for name in names}
    return Trends(step=_MINUTE, done={name: chart.rates("acked") for name, chart in kept.items()})


@get("/upcoming", opt={"action": "upcoming.show"})
async def room_upcoming(
    desk: AtDesk, queue: FromQuery[str] = "", over: FromQuery[str] = "", bars: FromQuery[int] = 48
) -> Coming:
    """How many scheduled messages are due when, in one queue or all; without `over`, as far as there is
    any. Counted by an index: none of them is looked at."""
    return await desk.call(_upcoming, desk.room, queue, milliseconds(over, "over") if over else None, bars)


def _upcoming(room: Room, queue: str, span: int | None, bars: int) -> Coming:
    names = [room.queue(queue).info().name] if queue else [info.name for info in room.queues()]
    return Coming(**upcoming.read(room.engine, names, span, bars)._asdict())


@get("/config", opt={"action": "config.show"})
async def room_config(desk: AtDesk) -> dict[str, Any]:
    """The effective configuration, each value with its origin, passwords left out.

    Beside it what is redacted, what the engine can (`capabilities`), and what each role may do (`access`).
    """
    return {
        **_config(desk.room.config),
        "redaction": desk.redaction.rules,
        "capabilities": desk.room.engine.capabilities._asdict(),
        "access": rights(),
    }


def _config(config: Config) -> dict[str, Any]:
    return {
        "file": config.file,
        "settings": _layer(config.settings),
        "queues": {name: _layer(table) for name, table in config.tables.items()},
        "roles": {name: _layer(table) for name, table in config.role_tables.items()},
    }


def _layer(layer: Layer) -> dict[str, Any]:
    return {
        name: {"value": without_secrets(setting.value), "origin": setting.origin}
        for name, setting in layer.items()
    }


@get("/doctor", opt={"action": "doctor.show"})
async def room_doctor(desk: AtDesk) -> list[Checked]:
    """What an operator should know of this room, and what to do about it: what `postroom doctor` says."""
    found = await desk.work(examine, desk.room)
    return [texts(desk.redaction, Checked(*each)) for each in found]


@get("/audit", opt={"action": "audit.list"})
async def room_audit(desk: AtDesk, after: FromQuery[str] = "", limit: FromQuery[int] = 100) -> Acts:
    """What operators did, oldest first, behind a cursor."""
    found = await desk.call(audit.read, desk.room.engine, after, limit)
    return Acts(acts(desk.redaction, found.acts), found.cursor, found.missed)


@post("/keeper/sweep", opt={"action": "keeper.sweep"}, status_code=200)
async def sweep(desk: AtDesk, data: JSONBody[Sweep | None] = None) -> dict[str, dict[str, int]]:
    """Do now what time demands: reclaim, promote, expire, evict; what was done by queue."""
    return await desk.work(_swept, desk.room, data.queues or [] if data else [])


def _swept(room: Room, names: list[str]) -> dict[str, dict[str, int]]:
    keeper = Keeper(room)
    queues = [room.queue(name).info().name for name in names] or [info.name for info in room.queues()]
    done = {queue: keeper.sweep(queue, "operator")._asdict() for queue in queues}
    return {
        queue: {name: did[name] for name in ("reclaimed", "dead", "promoted", "expired", "evicted")}
        for queue, did in done.items()
    }


ROUTES = [room_stats, room_sla, samples, trends, room_upcoming, room_config, room_doctor, room_audit, sweep]
