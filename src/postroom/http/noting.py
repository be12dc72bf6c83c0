"""Everything that somebody changes over HTTP stands in the audit: who, what, when, and why if they say so.

Most of it is noted by the domain, for every door. What the domain does not note is noted here, by what the
route says it does: so a new route cannot be forgotten. Messages that come and go (put, publish, claim,
settle) are the traffic itself and no acts: the access log has them, each with who it was. What somebody puts
or publishes by hand is one, and the desk notes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from litestar.connection import ASGIConnection
from litestar.enums import ScopeType

from postroom import audit
from postroom.http.auth import principal_of
from postroom.http.roles import RIGHTS, Action
from postroom.http.service import REASON, Service, actor_of, named

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Message, Receive, Scope, Send

_LONGEST = 500
_LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})
_TRAFFIC = frozenset({Action.PUT, Action.WORK, Action.PUBLISH})


class Noting:
    """The middleware; behind the one that finds out who asks."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self.app(scope, receive, send)
            return
        with audit.watched(_reason(scope)) as watched:
            told = send if not _is_act(scope) else _noting(scope, send, watched)
            await self.app(scope, receive, told)


def _is_act(scope: Scope) -> bool:
    if str(scope.get("method")) in _LOOKING:
        return False
    right = RIGHTS.get(_action(scope))
    if right is Action.PUBLIC:  # strangers must not fill the audit
        return bool(principal_of(ASGIConnection(scope)).token)
    return right not in _TRAFFIC


def _action(scope: Any) -> str:
    return str(scope["route_handler"].opt.get("action", ""))


def _reason(scope: Scope) -> str:
    value = dict(scope["headers"]).get(REASON.encode(), b"")
    return unquote(value.decode("latin-1"))[:_LONGEST].strip()


def _noting(scope: Scope, send: Send, watched: audit.Watched) -> Send:
    async def sending(message: Message) -> None:
        done = message["type"] == "http.response.start" and message["status"] < 400
        if done and not watched.noted:
            await _note(scope)  # before the client knows that it is done
        await send(message)

    return sending


async def _note(scope: Scope) -> None:
    connection: ASGIConnection[Any, Any, Any, Any] = ASGIConnection(scope)
    service: Service = connection.app.state.service
    which = {name: named(str(value)) for name, value in connection.path_params.items()}
    queue = which.pop("queue", "")
    with audit.acting(actor_of(connection)):
        await service.call(audit.note, service.room.engine, _action(scope), queue, 1, **which)
