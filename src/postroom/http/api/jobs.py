"""Jobs: bulk work on dead letters that goes on whatever becomes of the browser or of this server."""

from __future__ import annotations

import msgspec
from litestar import get, post
from litestar.params import FromPath, FromQuery

from postroom.http.looking import values
from postroom.http.service import AtDesk
from postroom.jobs import Job, Jobs


class JobList(msgspec.Struct):
    """Jobs in the order in which they were made; `cursor` goes on behind the last."""

    jobs: list[Job]
    cursor: str | None = None


@get("/jobs", opt={"action": "job.list"})
async def list_jobs(desk: AtDesk, cursor: FromQuery[str] = "", limit: FromQuery[int] = 100) -> JobList:
    """All jobs of the last 30 days."""
    found = await desk.call(Jobs(desk.room).list, cursor, limit)
    shown = [values(desk.redaction, each) for each in found]
    return JobList(shown, found[-1].id if len(found) == limit else None)


@get("/jobs/{id:str}", opt={"action": "job.show"})
async def show_job(desk: AtDesk, id: FromPath[str]) -> Job:
    """How far it is, and what came of it."""
    return values(desk.redaction, await desk.call(Jobs(desk.room).get, id))


@post("/jobs/{id:str}/cancel", opt={"action": "job.cancel"}, status_code=202)
async def cancel_job(desk: AtDesk, id: FromPath[str]) -> Job:
    """End it after its present step; what was done stays done."""
    return values(desk.redaction, await desk.call(Jobs(desk.room).cancel, id))


@post("/jobs/{id:str}/pause", opt={"action": "job.pause"}, status_code=202)
async def pause_job(desk: AtDesk, id: FromPath[str]) -> Job:
    """Have it rest after its present step, until it is resumed."""
    return values(desk.redaction, await desk.call(Jobs(desk.room).pause, id))


@post("/jobs/{id:str}/resume", opt={"action": "job.resume"}, status_code=202)
async def resume_job(desk: AtDesk, id: FromPath[str]) -> Job:
    """Have it go on where it rests."""
    return values(desk.redaction, await desk.call(Jobs(desk.room).resume, id))


ROUTES = [list_jobs, show_job, cancel_job, pause_job, resume_job]
