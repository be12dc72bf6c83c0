"""The smallest application that has everything a server must guard: for tests of the guards themselves."""

from __future__ import annotations

from typing import Any

from litestar import Litestar, Request, Response, delete, get, post
from litestar.testing import TestClient

from postroom import audit
from postroom.engine import Engine
from postroom.errors import Forbidden, PostroomError, Unauthorized
from postroom.http import auth
from postroom.http.auth import Access, Authentication, Authenticator
from postroom.http.guardrails import Guardrails, Hosts, Pace

BASE = "http://testserver.local"


@get("/healthz", opt={"action": "health"})
async def healthz() -> dict[str, bool]:
    return {"ok": True}


@get("/queues", opt={"action": "queue.list"})
async def queues(request: Request[Any, Any, Any]) -> dict[str, str]:
    return {"who": auth.principal_of(request).name, "actor": audit.actor()}


@post("/purge", opt={"action": "queue.purge"})
async def purge() -> dict[str, str]:
    return {"by": audit.actor()}


@get("/forgotten")
async def forgotten() -> None:
    """Says not what it does."""


@post("/session", opt={"action": "session.create"})
async def login(request: Request[Any, Any, Any]) -> Response[None]:
    secret = auth.begin_session(request.app.state.engine, auth.principal_of(request).token)
    cookie = auth.session_cookie(secret, secure=request.url.scheme == "https")
    return Response(None, headers={"set-cookie": cookie})


@delete("/session", opt={"action": "session.delete"})
async def logout(request: Request[Any, Any, Any]) -> None:
    auth.end_session(request.app.state.engine, request.headers.get("cookie", ""))
    request.app.state.authenticator.forget()


ROUTES = [healthz, queues, purge, forgotten, login, logout]


def _problem(_: Request[Any, Any, Any], error: PostroomError) -> Response[dict[str, str]]:
    statuses = {Unauthorized.code: 401, Forbidden.code: 403}
    return Response({"code": error.code, "detail": str(error)}, status_code=statuses.get(error.code, 500))


def application(engine: Engine, access: Access, *, routes: list[Any] | None = None) -> Litestar:
    """The routes behind the guard."""
    authenticator = Authenticator(engine, access)
    app = Litestar(
        ROUTES if routes is None else routes,
        guards=[auth.guard],
        middleware=[lambda app: Authentication(app, authenticator)],
        exception_handlers={PostroomError: _problem},
        openapi_config=None,
    )
    app.state.authenticator, app.state.engine = authenticator, engine
    return app


def client(
    engine: Engine,
    access: Access,
    *,
    hosts: Hosts | None = None,
    pace: Pace | None = None,
    base: str = BASE,
    routes: list[Any] | None = None,
) -> TestClient[Any]:
    app: Any = Guardrails(
        application(engine, access, routes=routes), hosts or Hosts(["testserver.local"]), pace
    )
    return TestClient(app, base_url=base)
