"""For machines that watch: is it alive, can it serve, what does it count."""

from __future__ import annotations

import msgspec
from litestar import Request, Response, get
from litestar.datastructures import State

from postroom.errors import MissingExtra
from postroom.http.auth import principal_of
from postroom.http.roles import Action
from postroom.http.service import Service
from postroom.room import Room
from postroom.standing import states_here


class Health(msgspec.Struct):
    """Whether it serves; if not, why."""

    ok: bool
    error: str = ""
    #: How long the store took to answer (ms).
    latency: float = 0.0
    #: Clients that wait for messages.
    waiting: int = 0


@get("/healthz", opt={"action": "health"}, security=[{}], sync_to_thread=False)
def healthz() -> Health:
    """The process lives. Says nothing about the store: a restart would not repair that."""
    return Health(ok=True)


@get("/readyz", opt={"action": "health"}, security=[{}])
async def readyz(request: Request[object, object, State]) -> Response[Health]:
    """The store answers, and this process is not on its way out; else 503.

    Where the store is, and what exactly is wrong with it, is told to who may look.
    """
    service: Service = request.app.state.service
    if service.lines.closed or service.room.is_shutdown:
        return Response(Health(ok=False, error="shutting down"), status_code=503)
    health = await service.call(service.room.health)
    error = health.error if not health.error or _may_look(request) else "the store does not answer"
    found = Health(health.ok, error, round(health.latency, 3), service.lines.waiting)
    return Response(found, status_code=200 if health.ok else 503)


def _may_look(request: Request[object, object, State]) -> bool:
    """Everybody, where nobody is asked who they are."""
    return request.scope.get("user") is None or principal_of(request).may(Action.READ)


@get("/metrics", opt={"action": "metrics"})
async def metrics(request: Request[object, object, State]) -> Response[bytes]:
    """Everything that the room counts, for Prometheus."""
    service: Service = request.app.state.service
    content, kind = await service.work(_collected, service.room, len(request.app.state.hub))
    return Response(content, headers={"content-type": kind})


def _collected(room: Room, listeners: int) -> tuple[bytes, str]:
    try:
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
    except ModuleNotFoundError as error:
        raise MissingExtra(f"pip install 'postroom[metrics]' ({error})") from error
    from postroom.telemetry.exporter import Own, collector

    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector(room, lambda: Own(states_here(), listeners)))
    return generate_latest(registry), CONTENT_TYPE_LATEST


ROUTES = [healthz, readyz, metrics]
