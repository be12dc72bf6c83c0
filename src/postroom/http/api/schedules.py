"""Schedules: when the next slot is, pause and resume, one message now."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import get, post
from litestar.params import FromPath, JSONBody

from postroom.http.service import AtDesk, Desk, named
from postroom.http.views import Put, Request
from postroom.schedule import Schedules, Standing


class Pause(Request):
    reason: str = ""


def _view(desk: Desk, standing: Standing) -> dict[str, Any]:
    fields: dict[str, Any] = desk.redaction.value(msgspec.to_builtins(standing))
    return {**fields.pop("schedule"), **fields, "next_slot": standing.next_slot}


@get("/schedules", opt={"action": "schedule.list"})
async def list_schedules(desk: AtDesk) -> list[dict[str, Any]]:
    """All schedules that the configuration or any keeper knows."""
    return [_view(desk, each) for each in await desk.call(Schedules(desk.room).standings)]


@post("/schedules/{name:str}/pause", opt={"action": "schedule.pause"}, status_code=200)
async def pause_schedule(
    desk: AtDesk, name: FromPath[str], data: JSONBody[Pause | None] = None
) -> dict[str, Any]:
    """Put no more slots of it, in any process."""
    reason = data.reason if data else ""
    return _view(desk, await desk.call(Schedules(desk.room).pause, named(name), reason))


@post("/schedules/{name:str}/resume", opt={"action": "schedule.resume"}, status_code=200)
async def resume_schedule(desk: AtDesk, name: FromPath[str]) -> dict[str, Any]:
    """Go on with the next slot."""
    return _view(desk, await desk.call(Schedules(desk.room).resume, named(name)))


@post("/schedules/{name:str}/run-now", opt={"action": "schedule.run_now"})
async def run_schedule_now(desk: AtDesk, name: FromPath[str]) -> Put:
    """Put one message of it at once."""
    put = await desk.call(Schedules(desk.room).run_now, named(name))
    return Put(put.id, put.created)


ROUTES = [list_schedules, pause_schedule, resume_schedule, run_schedule_now]
