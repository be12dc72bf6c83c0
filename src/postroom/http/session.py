"""The way in for a browser: a session made from a token, who one is, and the way out."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from litestar import Request, Response, delete, get, post

from postroom import audit
from postroom.errors import Unauthorized
from postroom.http import auth
from postroom.http.auth import principal_of

AnyRequest = Request[Any, Any, Any]


class Who(msgspec.Struct, frozen=True):
    """Who asks, and what they may do."""

    name: str
    actions: list[str]


@get("/session", opt={"action": "session.show"}, security=[{}])
async def show(request: AnyRequest) -> Who:
    """Who you are to this server, and what you may do."""
    principal = principal_of(request)
    return Who(principal.name, sorted(principal.actions))


@post("/session", opt={"action": "session.create"}, security=[{}], status_code=200)
async def create(request: AnyRequest) -> Response[Who]:
    """Log in: send a bearer token once, get a cookie for 12 hours at most."""
    principal = principal_of(request)
    if principal.problem:
        raise Unauthorized(principal.problem)
    if not request.headers.get("authorization"):  # a session that makes sessions would never end
        raise Unauthorized("a session is made from a token: send it as a bearer token")
    secret = await asyncio.to_thread(auth.begin_session, _engine(request), principal.token)
    return _answer(request, Who(principal.name, sorted(principal.actions)), secret)


@delete("/session", opt={"action": "session.delete"}, security=[{}], status_code=200)
async def end(request: AnyRequest) -> Response[None]:
    """Log out: the session ends here and in the store."""
    if not await asyncio.to_thread(auth.end_session, _engine(request), request.headers.get("cookie", "")):
        audit.nothing_to_note()
    request.app.state.authenticator.forget()
    return _answer(request, None, "")


def _engine(request: AnyRequest) -> Any:
    return request.app.state.authenticator.engine


def _answer(request: AnyRequest, said: Any, secret: str) -> Response[Any]:
    cookie = auth.session_cookie(secret, secure=request.url.scheme == "https")
    return Response(said, headers={"set-cookie": cookie})


ROUTES = [show, create, end]
