"""The application with everything that stands before it: what a process serves to others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litestar import Router
from litestar.middleware import DefineMiddleware

from postroom.http import auth, granting, session
from postroom.http.asgi import app
from postroom.http.auth import Access, Authentication, Authenticator
from postroom.http.guardrails import Guardrails, Hosts, Pace
from postroom.http.queries import check_query
from postroom.policy import Rate
from postroom.room import Room

#: What only a server of its own has, beside what an application can mount.
ROUTES = [*session.ROUTES, *granting.ROUTES]


def secured(
    room: Room, access: Access, *, hosts: Sequence[str] = (), pace: Pace | None = None, **options: Any
) -> Guardrails:
    """`asgi.app` with tokens, sessions and guardrails; `options` are the app's own."""
    authenticator = Authenticator(room.engine, access)
    made = app(
        room,
        routes=[Router("/", route_handlers=ROUTES, before_request=check_query)],
        middleware=[DefineMiddleware(Authentication, authenticator=authenticator)],
        guards=[auth.guard],
        **options,
    )
    guarded = Guardrails(made, Hosts(hosts), pace)
    guarded.state.authenticator = authenticator
    return guarded


def pace_for(access: Access, rate: str | None) -> Pace | None:
    """`rate` in the long run, twice as much at once. Where only this machine can come, nobody has to wait."""
    if rate is None or not (access.required or access.read_only):
        return None
    parsed = Rate.parse(rate)
    return Pace(parsed, 2 * parsed.count)
