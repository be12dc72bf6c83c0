"""The ASGI application: routes, errors, limits and what they share, put together."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from litestar import Litestar, Request, Router
from litestar.config.compression import CompressionConfig
from litestar.connection import ASGIConnection
from litestar.di import Provide
from litestar.handlers.base import BaseRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, License, Reference, SecurityScheme
from litestar.types import ASGIApp, Middleware

from postroom.errors import NotFound
from postroom.http import assets, probes, schema, stream
from postroom.http.access import Access
from postroom.http.api import ROUTES
from postroom.http.auth import COOKIE
from postroom.http.looking import provide_sight
from postroom.http.noting import Noting
from postroom.http.paths import WholeNames
from postroom.http.problems import HANDLERS
from postroom.http.queries import check_query
from postroom.http.redaction import Redaction
from postroom.http.service import Service, provide_desk
from postroom.http.stream import Hub
from postroom.keeper import Keeper
from postroom.limits import MAX_PUT_BYTES
from postroom.room import Room
from postroom.services import EventService
from postroom.version import __version__

PREFIX = "/api/v1"
#: A full call of bodies as base64, and what is said beside them.
MAX_REQUEST = MAX_PUT_BYTES * 4 // 3 + 4 * 2**20
#: What stands before a route; Litestar's own name for it leaves open what a connection carries.
Guard = Callable[[ASGIConnection[Any, Any, Any, Any], BaseRouteHandler], Awaitable[None] | None]
#: Answers from this size on are compressed, for clients that say so.
_WORTH_IT = 1_024


def app(
    room: Room,
    *,
    keeper: bool = True,
    routes: Sequence[Any] = (),
    middleware: Sequence[Middleware] = (),
    guards: Sequence[Guard] = (),
    redaction: Redaction | None = None,
    services: Sequence[EventService] = (),
) -> ASGIApp:
    """Everything of a room over HTTP. Serve it, or mount it in another ASGI application.

    It runs a candidate for the room's keeper unless told otherwise, from its lifespan. `routes` come beside
    ours under /api/v1; `middleware` and `guards` stand before all of them, and find what a route does in its
    `opt["action"]`, such as "queue.purge". `redaction` says what is hidden from those who look; else the
    configuration does. `services` are those whose archives of events are served too, such as an app of
    `postroom.celery.events`. The room stays the caller's to close.
    """
    ours = [*ROUTES, *schema.ROUTES, stream.events]
    theirs = Router(PREFIX, route_handlers=routes)
    service = Service(room, redaction or _redaction(room), services)
    hub = Hub(room.engine, service.redaction)
    made = Litestar(
        [
            Router(PREFIX, route_handlers=ours, before_request=check_query),
            theirs,
            Router("/", route_handlers=[*probes.ROUTES, *assets.ROUTES], guards=guards),
        ],
        dependencies={"desk": Provide(provide_desk), "sight": Provide(provide_sight)},
        exception_handlers=HANDLERS,
        middleware=[*middleware, Noting],
        guards=list(guards),  # of the probes and the schema too: each says its action
        lifespan=[_lifespan(service, hub, Keeper(room) if keeper else None)],
        openapi_config=_openapi(guarded=bool(guards)),
        compression_config=CompressionConfig(
            backend="gzip",
            minimum_size=_WORTH_IT,
            gzip_compress_level=4,
            exclude_opt_key="no_compression",  # for events, which must not wait for each other
        ),
        request_max_body_size=MAX_REQUEST,
        logging_config=None,
    )
    made.state.service, made.state.hub, made.state.assets = service, hub, assets.Assets()
    return Access(WholeNames(made))


def _redaction(room: Room) -> Redaction:
    """As configured: what is always hidden, and rules of one's own."""
    told = room.config.http
    return Redaction(told.redact or (), told.redact_patterns or ())


def _lifespan(service: Service, hub: Hub, keeper: Keeper | None) -> Any:
    @contextlib.asynccontextmanager
    async def running(_: Litestar) -> AsyncIterator[None]:
        service.runner.start()
        service.archives.start()
        if keeper:
            keeper.start()
        try:
            yield
        finally:
            service.lines.close()
            await hub.close()
            await service.work(service.runner.stop)
            await service.work(service.archives.stop)
            if keeper:
                await service.work(keeper.stop)
            service.close()

    return running


def _openapi(*, guarded: bool) -> OpenAPIConfig:
    """Behind guards every route asks for a token or a session, but those that say `security=[{}]`."""
    schemes: dict[str, SecurityScheme | Reference] = {
        "bearer": SecurityScheme(type="http", scheme="bearer", description="postroom token create"),
        "session": SecurityScheme(type="apiKey", name=COOKIE, security_scheme_in="cookie"),
    }
    return OpenAPIConfig(
        components=Components(security_schemes=schemes if guarded else {}),
        security=[{"bearer": []}, {"session": []}] if guarded else None,
        title="Postroom",
        version=__version__,
        description="Every verb of a room. Times are epoch milliseconds; spans are seconds or text.",
        license=License(name="MIT"),
        openapi_router=Router(
            f"{PREFIX}/schema",
            route_handlers=[],
            opt={"action": "schema.show"},
            before_request=_only_what_is_there,
            include_in_schema=False,
        ),
        # The usual pages load their scripts from elsewhere.
        render_plugins=[schema.Page(path="/"), schema.Document(path="/openapi.json")],
        use_handler_docstrings=True,
    )


async def _only_what_is_there(request: Request[Any, Any, Any]) -> None:
    """Beside the page and the document Litestar would answer with a page of its own."""
    if not request.url.path.rstrip("/").endswith(("/schema", "/openapi.json")):
        raise NotFound("there is the page, openapi.json and nothing else")
