"""Who asks, and what they may do: tokens, sessions, roles, and a server that stands open to nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from litestar import Litestar, route
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute
from litestar.testing import TestClient

from postroom import audit
from postroom.engine import Engine
from postroom.engines.memory import MemoryEngine
from postroom.errors import ConfigError, Forbidden, Unauthorized
from postroom.http import auth, tokens
from postroom.http.auth import Access, Authenticator, Principal
from postroom.http.roles import ACTIONS, READ_ONLY, RIGHTS, Action, Role
from postroom.testing.clock import ManualClock
from tests.http import tiny

OPEN = Access(required=False)
CLOSED = Access(required=True)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = MemoryEngine()
    yield engine
    engine.close()


def bearer(engine: Engine, role: Role, name: str = "ada") -> dict[str, str]:
    return {"authorization": f"Bearer {tokens.create(engine, name, role).text}"}


# ---- Where a server may listen --------------------------------------------------------------------


def test_loopback_without_tokens_is_open(engine: Engine) -> None:
    assert Access.decide(engine, "127.0.0.1").anonymous().actions == frozenset(Action)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::", "jobs.example"])
def test_another_address_without_tokens_is_refused(engine: Engine, host: str) -> None:
    with pytest.raises(ConfigError, match="postroom token create"):
        Access.decide(engine, host)


def test_read_only_may_stand_open(engine: Engine) -> None:
    access = Access.decide(engine, "0.0.0.0", read_only=True)
    assert access.anonymous().actions == READ_ONLY


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_with_a_token_everybody_needs_one(engine: Engine, host: str) -> None:
    tokens.create(engine, "ada", Role.ADMIN)
    access = Access.decide(engine, host)
    assert access.anonymous().actions == {Action.PUBLIC}
    tokens.revoke(engine, "ada")  # the last one: and still nobody comes in
    assert access.anonymous().actions == {Action.PUBLIC}


def test_read_only_binds_an_admin_too(engine: Engine) -> None:
    with tiny.client(engine, Access(required=True, read_only=True)) as client:
        headers = bearer(engine, Role.ADMIN)
        assert client.get("/queues", headers=headers).status_code == 200
        assert client.post("/purge", headers=headers).status_code == 403


# ---- Tokens ---------------------------------------------------------------------------------------


def test_without_a_token_only_what_is_public(engine: Engine) -> None:
    with tiny.client(engine, CLOSED) as client:
        assert client.get("/healthz").status_code == 200
        answer = client.get("/queues")
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


@pytest.mark.parametrize("header", ["Bearer", "Bearer ", "Bearer x", "Basic YTpi", "nonsense", "Bearer \x80"])
def test_a_wrong_header_is_unauthorized_and_no_error(engine: Engine, header: str) -> None:
    with tiny.client(engine, CLOSED) as client:
        assert client.get("/queues", headers={b"authorization": header.encode("latin-1")}).status_code == 401
        assert client.get("/healthz", headers={b"authorization": header.encode("latin-1")}).status_code == 200


def test_what_is_done_is_done_by_the_name_of_the_token(engine: Engine) -> None:
    with tiny.client(engine, CLOSED) as client:
        headers = bearer(engine, Role.ADMIN, "ada")
        assert client.get("/queues", headers=headers).json() == {"who": "ada", "actor": "ada"}
        assert client.post("/purge", headers=headers).json() == {"by": "ada"}


def test_a_wrong_token_is_refused_where_none_is_needed(engine: Engine) -> None:
    with tiny.client(engine, OPEN) as client:
        assert client.get("/queues").status_code == 200
        assert client.get("/queues", headers={"authorization": "Bearer x"}).status_code == 401


async def _who(authenticator: Authenticator, text: str) -> Principal:
    return await authenticator.principal(f"Bearer {text}", "")


def test_a_revoked_token_is_known_for_two_seconds_at_most(engine: Engine) -> None:
    now = [0.0]
    authenticator = Authenticator(engine, CLOSED, clock=lambda: now[0])
    text = tokens.create(engine, "ada", Role.VIEWER).text
    assert asyncio.run(_who(authenticator, text)).name == "ada"
    tokens.revoke(engine, "ada")
    now[0] = auth.KNOWN_FOR - 0.1
    assert asyncio.run(_who(authenticator, text)).may(Action.READ)
    now[0] = auth.KNOWN_FOR
    assert not asyncio.run(_who(authenticator, text)).may(Action.READ)


def test_what_is_remembered_is_bounded(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "_KNOWN", 3)
    authenticator = Authenticator(engine, CLOSED)
    for n in range(10):
        asyncio.run(_who(authenticator, tokens.create(engine, f"ci{n}", Role.VIEWER).text))
        asyncio.run(_who(authenticator, f"wrong {n}"))
    assert len(authenticator._known) == 3


# ---- Sessions -------------------------------------------------------------------------------------


def logged_in(engine: Engine, client: TestClient[Any], role: Role = Role.OPERATOR) -> str:
    """Log in as a browser does; the client keeps the cookie."""
    answer = client.post("/session", headers=bearer(engine, role))
    assert answer.status_code == 201
    return str(answer.headers["set-cookie"])


def test_a_browser_gets_a_session_from_a_token(engine: Engine) -> None:
    with tiny.client(engine, CLOSED) as client:
        cookie = logged_in(engine, client)
        assert client.get("/queues").json()["who"] == "ada"
        assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
        secret = cookie.partition("=")[2].partition(";")[0]
        assert all(secret not in record.key for record in engine.records.list(auth.SESSION))


def test_over_tls_the_cookie_is_secure(engine: Engine) -> None:
    with tiny.client(engine, CLOSED, base="https://testserver.local") as client:
        assert logged_in(engine, client).endswith("; Secure")


def test_a_session_ends_by_logging_out(engine: Engine) -> None:
    with tiny.client(engine, CLOSED) as client:
        logged_in(engine, client)
        assert client.get("/queues").status_code == 200
        client.delete("/session")
        assert client.get("/queues").status_code == 401


def test_a_revoked_token_takes_its_sessions_along(engine: Engine) -> None:
    made = tokens.create(engine, "ada", Role.VIEWER)
    secret = auth.begin_session(engine, made.token.id)
    assert auth.token_of_session(engine, secret) == made.token
    tokens.revoke(engine, "ada")
    assert auth.token_of_session(engine, secret) is None


def test_a_session_lasts_no_longer_than_its_token_and_twelve_hours() -> None:
    clock = ManualClock()
    engine = MemoryEngine(clock)
    short = auth.begin_session(engine, tokens.create(engine, "a", Role.VIEWER, ttl=60_000).token.id)
    long = auth.begin_session(engine, tokens.create(engine, "b", Role.VIEWER).token.id)
    clock.advance("1m")
    assert auth.token_of_session(engine, short) is None
    assert auth.token_of_session(engine, long) is not None
    clock.advance("12h")
    assert auth.token_of_session(engine, long) is None


def test_without_a_token_there_is_no_session(engine: Engine) -> None:
    with tiny.client(engine, CLOSED) as client:
        assert client.post("/session").status_code == 401


@pytest.mark.parametrize(
    "cookie", ["postroom_session=x", "postroom_session=", "=;=", "a=b; postroom_session=x"]
)
def test_a_wrong_cookie_is_nobody(engine: Engine, cookie: str) -> None:
    with tiny.client(engine, CLOSED) as client:
        assert client.get("/queues", headers={"cookie": cookie}).status_code == 401


# ---- Roles ----------------------------------------------------------------------------------------


def handlers(app: Litestar) -> list[HTTPRouteHandler]:
    """Every handler of every route, once; not those that Litestar makes for OPTIONS."""
    routes = [each for each in app.routes if isinstance(each, HTTPRoute)]
    found = {id(handler): handler for each in routes for handler in each.route_handlers}
    return [handler for handler in found.values() if handler.http_methods != {"OPTIONS"}]


def without_action(app: Litestar) -> list[str]:
    return [str(handler) for handler in handlers(app) if handler.opt.get("action") not in RIGHTS]


def every_action() -> list[Any]:
    """A route for each thing that a route can do."""

    def made(action: str) -> Any:
        @route(f"/{action}", http_method=["GET"], opt={"action": action}, name=action)
        async def handler() -> None:
            pass

        return handler

    return [made(action) for action in RIGHTS]


@pytest.mark.parametrize("role", Role)
def test_a_role_may_do_what_it_may_and_nothing_else(engine: Engine, role: Role) -> None:
    headers = bearer(engine, role)
    with tiny.client(engine, CLOSED, routes=every_action()) as client:
        for action, right in RIGHTS.items():
            status = client.get(f"/{action}", headers=headers).status_code
            assert status == (200 if right in ACTIONS[role] else 403), action
            nobody = client.get(f"/{action}").status_code
            assert nobody == (200 if right is Action.PUBLIC else 401), action


def test_every_right_is_asked_for_somewhere() -> None:
    assert set(RIGHTS.values()) == set(Action)


def test_a_route_without_an_action_is_found_and_closed(engine: Engine) -> None:
    assert len(without_action(tiny.application(engine, OPEN))) == 1
    with tiny.client(engine, OPEN) as client:
        assert client.get("/forgotten").status_code == 403


# ---- Raw ------------------------------------------------------------------------------------------


def test_looking_at_it_raw_is_a_right_and_audited(engine: Engine) -> None:
    for role, allowed in ((Role.VIEWER, False), (Role.OPERATOR, False), (Role.ADMIN, True)):
        principal = Principal("ada", ACTIONS[role])
        if not allowed:
            with pytest.raises(Forbidden):
                auth.check_raw(principal, engine, "emails", ["1"])
    assert audit.read(engine).acts == []
    with audit.acting("ada"):
        auth.check_raw(Principal("ada", ACTIONS[Role.ADMIN]), engine, "emails", ["1", "2"])
    (act,) = audit.read(engine).acts
    assert (act.event, act.queue, act.count, act.by, act.info) == (
        "raw",
        "emails",
        2,
        "ada",
        {"ids": ["1", "2"]},
    )


def test_nobody_may_do_nothing() -> None:
    with pytest.raises(Unauthorized, match="needed"):
        CLOSED.anonymous().check(Action.READ)
