"""Who works in the room, and what workers are told."""

from __future__ import annotations

import msgspec
from litestar import get, post
from litestar.params import FromPath, JSONBody

from postroom.http.api.breakers import Reason
from postroom.http.service import AtDesk, Desk, named
from postroom.staff import Word, WorkerInfo, tell


class Workers(msgspec.Struct):
    now: int
    workers: list[WorkerInfo]


@get("/workers", opt={"action": "worker.list"})
async def list_workers(desk: AtDesk) -> Workers:
    """Who works here, in whatever process, and who was lost within the last minutes."""
    room = desk.room
    now, workers = await desk.call(lambda: (room.engine.now(), room.workers()))
    return Workers(now, [_shown(desk, worker) for worker in workers])


@post("/workers/{id:str}/quiet", opt={"action": "worker.quiet"}, status_code=200)
async def quiet(desk: AtDesk, id: FromPath[str], data: JSONBody[Reason | None] = None) -> WorkerInfo:
    """Have a worker claim no more: it hears that within ten seconds, and finishes what it began."""
    return await _told(desk, id, "quiet", data)


@post("/workers/{id:str}/resume", opt={"action": "worker.resume"}, status_code=200)
async def resume(desk: AtDesk, id: FromPath[str], data: JSONBody[Reason | None] = None) -> WorkerInfo:
    """Have a quiet worker claim again."""
    return await _told(desk, id, "resume", data)


@post("/workers/{id:str}/stop", opt={"action": "worker.stop"}, status_code=200)
async def stop(desk: AtDesk, id: FromPath[str], data: JSONBody[Reason | None] = None) -> WorkerInfo:
    """Have a worker end, as by SIGTERM; whoever runs it may start another."""
    return await _told(desk, id, "stop", data)


async def _told(desk: Desk, id: str, word: Word, data: Reason | None) -> WorkerInfo:
    told = await desk.call(tell, desk.room.engine, named(id), word, data.reason if data else "")
    return _shown(desk, told)


def _shown(desk: Desk, worker: WorkerInfo) -> WorkerInfo:
    """What an error says may hold a secret."""
    return msgspec.structs.replace(worker, last_error=desk.redaction.text(worker.last_error))


ROUTES = [list_workers, quiet, resume, stop]
