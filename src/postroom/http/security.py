"""The application with everything that stands before it: what a process serves to others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litestar.middleware import DefineMiddleware

from postroom.http import auth, granting, session, stream
from postroom.http.asgi import app
from postroom.http.auth import Access, Authentication, Authenticator
from postroom.http.guardrails import Guardrails, Hosts, Pace
from postroom.http.stream import Hub
from postroom.policy import Rate
from postroom.room import Room


def secured(
    room: Room, access: Access, *, hosts: Sequence[str] = (), pace: Pace | None = None, **options: Any
) -> Guardrails:
    """`asgi.app` with tokens, sessions, live events and guardrails; `options` are the app's own."""
    authenticator = Authenticator(room.engine, access)
    made = app(
        room,
        routes=[stream.events, *session.ROUTES, *granting.ROUTES],
        middleware=[DefineMiddleware(Authentication, authenticator=authenticator)],
        guards=[auth.guard],
        **options,
    )
    guarded = Guardrails(made, Hosts(hosts), pace)
    state = guarded.state
    state.authenticator, state.hub = authenticator, Hub(room.engine, state.service.redaction)
    return guarded


def pace_for(access: Access, rate: str | None) -> Pace | None:
    """`rate` in the long run, twice as much at once. Where only this machine can come, nobody has to wait."""
    if rate is None or not (access.required or access.read_only):
        return None
    parsed = Rate.parse(rate)
    return Pace(parsed, 2 * parsed.count)
