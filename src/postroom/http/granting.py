"""The tokens of the server over HTTP: who has one, a new one, and one less. For who may give rights: admins.

Only a server that asks for tokens has these routes: an application that mounts the room decides itself who
comes in, and must not make or end tokens of other servers on the same store.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request as HTTPRequest
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from postroom import audit
from postroom.duration import milliseconds
from postroom.engine import Engine
from postroom.errors import Forbidden
from postroom.http import tokens
from postroom.http.auth import Principal, principal_of
from postroom.http.roles import ACTIONS, Action, Role
from postroom.http.service import AtDesk, named
from postroom.http.tokens import NewToken, Token
from postroom.http.views import Request, Span

AnyRequest = HTTPRequest[Any, Any, Any]


class TokenView(msgspec.Struct, kw_only=True):
    """A token as it may be looked at: neither the secret nor its hash."""

    id: str
    name: str
    role: Role
    allow: list[Action]
    created: int
    expires: int | None
    #: To the minute; null: never.
    last_used: int | None
    #: Whether it is the one behind this request.
    own: bool = False


class TokenList(msgspec.Struct):
    now: int
    tokens: list[TokenView]


class Wanted(Request):
    """A token to make: whose, with which role, which rights beyond it, gone after how long."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    role: Role = Role.VIEWER
    allow: Annotated[list[Action], Meta(max_length=len(Action))] = msgspec.field(default_factory=list)
    expires: Span | None = None


class Made(msgspec.Struct):
    """A token that was just made. `secret` is what to send, and is shown in this answer only."""

    token: TokenView
    secret: str


@get("/tokens", opt={"action": "token.list"})
async def list_tokens(desk: AtDesk, request: AnyRequest) -> TokenList:
    """Every token, the oldest first: whose it is, what it may do, until when, when it was last used."""
    engine, own = desk.room.engine, principal_of(request).token
    now, found = await desk.call(lambda: (engine.now(), tokens.listed(engine)))
    return TokenList(now, [_view(token, own) for token in found])


@post("/tokens", opt={"action": "token.create"})
async def create_token(desk: AtDesk, request: AnyRequest, data: JSONBody[Wanted]) -> Made:
    """Make a token; its secret is in this answer and never again. Nobody gives more than they have."""
    principal = principal_of(request)
    made = await desk.call(_create, desk.room.engine, principal, data)
    return Made(_view(made.token, principal.token), made.text)


def _create(engine: Engine, principal: Principal, wanted: Wanted) -> NewToken:
    ttl = None if wanted.expires is None else milliseconds(wanted.expires, "expires")
    _check_given(principal, wanted)
    made = tokens.create(engine, wanted.name, wanted.role, ttl=ttl, allow=frozenset(wanted.allow))
    audit.note(engine, "token.create", id=made.token.id, name=wanted.name, role=wanted.role)
    return made


def _check_given(principal: Principal, wanted: Wanted) -> None:
    """Else a token that may only make tokens would be one that may do everything."""
    asked = ACTIONS[wanted.role] | frozenset(wanted.allow)
    if beyond := sorted(asked - principal.actions - {Action.PUBLIC}):
        raise Forbidden(f"{principal.name} may not give what they have not: {', '.join(beyond)}")


@delete("/tokens/{id:str}", opt={"action": "token.revoke"}, status_code=204)
async def revoke_token(desk: AtDesk, request: AnyRequest, id: FromPath[str]) -> None:
    """Revoke a token, and with it the sessions that came from it; every server notices within 2 s."""
    await desk.call(_revoke, desk.room.engine, named(id))
    request.app.state.authenticator.forget()


def _revoke(engine: Engine, id: str) -> None:
    revoked = tokens.revoke(engine, id)
    audit.note(engine, "token.revoke", id=revoked.id, name=revoked.name)


def _view(token: Token, own: str) -> TokenView:
    return TokenView(
        id=token.id,
        name=token.name,
        role=token.role,
        allow=list(token.allow),
        created=token.created,
        expires=token.expires,
        last_used=token.last_used,
        own=token.id == own,
    )


ROUTES = [list_tokens, create_token, revoke_token]
