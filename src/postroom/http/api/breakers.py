"""Breakers that processes share: how they stand; opened and closed by hand."""

from __future__ import annotations

import msgspec
from litestar import get, post
from litestar.params import FromPath, FromQuery, JSONBody

from postroom.breaker import Breaker, changes
from postroom.errors import NotFound
from postroom.http.looking import texts
from postroom.http.service import AtDesk, named
from postroom.http.views import Request, Span
from postroom.room import Room
from postroom.staff import guarded
from postroom.standing import Standing, State, standings


class Reason(Request):
    reason: str = ""


class Opening(Reason):
    """Why, and for how long; without that until somebody closes it."""

    expires: Span | None = None


class BreakerView(Standing, frozen=True, kw_only=True):
    """How a breaker stands, the `queues` that workers have tied to it, and how many of their messages are
    ready and `held` back by it now."""

    queues: tuple[str, ...] = ()
    held: int = 0


class Changed(msgspec.Struct):
    """A breaker came from one state into another."""

    name: str
    before: State
    after: State
    at: int
    reason: str


class History(msgspec.Struct):
    now: int
    changes: list[Changed]


@get("/breakers", opt={"action": "breaker.list"})
async def list_breakers(desk: AtDesk) -> dict[str, BreakerView]:
    """How the shared breakers stand, by name, and what they hold back."""
    found = await desk.work(_views, desk.room)
    return {name: texts(desk.redaction, view) for name, view in found.items()}


def _views(room: Room) -> dict[str, BreakerView]:
    queues = guarded(room.engine)
    return {name: _view(room, each, queues.get(name, [])) for name, each in standings(room).items()}


def _view(room: Room, standing: Standing, queues: list[str]) -> BreakerView:
    waits = () if standing.state is State.CLOSED else queues
    held = sum(room.engine.stats(queue).ready for queue in waits)
    return BreakerView(**msgspec.structs.asdict(standing), queues=tuple(queues), held=held)


@get("/breakers/history", opt={"action": "breaker.list"})
async def breaker_history(desk: AtDesk, name: FromQuery[str | None] = None) -> History:
    """What the shared breakers, or one of them, went through within a day: the newest 1,000, oldest first."""
    engine = desk.room.engine
    found = await desk.work(changes, engine, name)
    told = [Changed(**change._asdict()) for change in found]
    return History(await desk.call(engine.now), [texts(desk.redaction, each) for each in told])


@post("/breakers/{name:str}/open", opt={"action": "breaker.open"}, status_code=200)
async def open_breaker(desk: AtDesk, name: FromPath[str], data: JSONBody[Opening | None] = None) -> Standing:
    """Open it until somebody closes it, or for so long (`expires`)."""
    return await desk.call(_opened, desk.room, named(name), data or Opening())


def _opened(room: Room, name: str, said: Opening) -> Standing:
    breaker = Breaker(name, room=room)
    breaker.open(said.reason, expires=said.expires)
    return breaker.standing


@post("/breakers/{name:str}/close", opt={"action": "breaker.close"}, status_code=200)
async def close_breaker(desk: AtDesk, name: FromPath[str], data: JSONBody[Reason | None] = None) -> Standing:
    """Close it and forget its failures."""
    return await desk.call(_closed, desk.room, named(name), data.reason if data else "")


def _closed(room: Room, name: str, reason: str) -> Standing:
    if name not in standings(room):
        raise NotFound(f"there is no breaker {name!r}")
    breaker = Breaker(name, room=room)
    breaker.close(reason)
    return breaker.standing


ROUTES = [list_breakers, breaker_history, open_breaker, close_breaker]
