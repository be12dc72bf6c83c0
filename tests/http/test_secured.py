"""The real application behind its guards: every route and every role, and a process that serves it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar, get
from litestar.routes import HTTPRoute
from litestar.testing import TestClient

import postroom
from postroom import audit
from postroom.http import app, auth, tokens
from postroom.http.auth import Access
from postroom.http.redaction import HIDDEN
from postroom.http.roles import ACTIONS, RIGHTS, Action, Role
from postroom.http.security import secured
from postroom.room import Health, Room
from tests.http.servers import PATIENCE, Served, serving
from tests.redis import servers as redis_servers

BASE = "http://testserver.local"
#: What everybody may do: probes, the way in, and the page that shows it.
PUBLIC = {"health", "session.show", "session.create", "session.delete", "dashboard.show"}
#: Which also wants to know whose session it is.
LOGIN = "session.create"


@pytest.fixture
def room() -> Iterator[Room]:
    with postroom.open("memory://") as room:
        yield room


def routes(app: Litestar) -> list[tuple[str, str, str]]:
    """Method, path and action of every route."""
    found: list[tuple[str, str, str]] = []
    for route in app.routes:
        if not isinstance(route, HTTPRoute):
            continue
        for handler in route.route_handlers:
            methods = sorted(str(method) for method in handler.http_methods if method != "OPTIONS")
            found += [(method, route.path_format, str(handler.opt.get("action"))) for method in methods]
    return found


def litestar(room: Room) -> Litestar:
    return inside(secured(room, Access(required=True), keeper=False))


def inside(found: Any) -> Litestar:
    """The application behind everything that stands before it."""
    while not isinstance(found, Litestar):
        found = vars(found).get("app") or found._app
    return found


def test_every_route_says_what_it_does(room: Room) -> None:
    there = routes(litestar(room))
    assert len(there) > 20
    assert [each for each in there if each[2] not in RIGHTS] == []


def test_what_is_public_was_decided(room: Room) -> None:
    """Everything else asks for a token, the document that describes the routes too, and says so there."""
    app = litestar(room)
    assert {name for name, right in RIGHTS.items() if right is Action.PUBLIC} == PUBLIC
    found = {(method.lower(), path): action for method, path, action in routes(app)}
    assert ("get", "/metrics") in found and found["get", "/api/v1/schema/openapi.json"] == "schema.show"
    document = app.openapi_schema.to_schema()
    assert document["security"] == [{"bearer": []}, {"session": []}]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            public = found[method, path] in PUBLIC
            assert operation.get("security") == ([{}] if public else None), (method, path)


def _statuses(room: Room, access: Access, headers: dict[str, str]) -> dict[tuple[str, str, str], int]:
    """How each route answers to nothing but these headers."""
    app = secured(room, access, hosts=["testserver.local"], keeper=False)
    app.state.hub.dismiss()  # else listening would not end
    with TestClient(app, base_url=BASE) as client:
        return {
            (method, path, action): client.request(
                method, path.replace("{", "").replace("}", ""), headers=headers
            ).status_code
            for method, path, action in routes(litestar(room))
        }


def _check(statuses: dict[tuple[str, str, str], int], allowed: frozenset[Action], refusal: int) -> None:
    """Refused is 401 or 403; whatever else comes, a 404 or a 400 for an empty body, has passed the guard."""
    assert len(statuses) > 40
    for route, status in statuses.items():
        if route[2] == LOGIN and refusal == 401:
            assert status == 401, route
        else:
            assert (status == refusal) is (RIGHTS[route[2]] not in allowed), (route, status)


@pytest.mark.parametrize("role", [None, *Role])
@pytest.mark.parametrize("read_only", [False, True])
def test_every_route_asks_every_role_for_its_right(room: Room, role: Role | None, read_only: bool) -> None:
    headers = {}
    if role is not None:
        headers["authorization"] = f"Bearer {tokens.create(room.engine, 'ada', role).text}"
    allowed = ACTIONS[role] if role else frozenset({Action.PUBLIC})
    access = Access(required=True, read_only=read_only)
    _check(_statuses(room, access, headers), access.limited(allowed), 403 if role else 401)


@pytest.fixture(params=["memory", "sqlite", "redis"])
def guarded(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Served, dict[Role | None, str]]]:
    """A process on each engine, and a token of each role; without one (None) only where nobody needs any."""
    with ExitStack() as stack:
        if request.param == "redis":
            url = stack.enter_context(redis_servers.single()).url()
        else:
            url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
        served = stack.enter_context(serving(url, tmp_path))
        made: dict[Role | None, str] = {role: _made(served, role) for role in Role}
        if request.param != "memory":  # what else would forget them
            assert served.terminate() == 0
            served = stack.enter_context(serving(url, tmp_path))
            made |= {None: ""}
        yield served, made


def _made(served: Served, role: Role) -> str:
    answer = httpx.post(f"{served.api}/tokens", json={"name": role, "role": role}, timeout=PATIENCE)
    return str(answer.json()["secret"])


def test_every_route_of_a_process_asks_every_role_for_its_right(
    room: Room, guarded: tuple[Served, dict[Role | None, str]]
) -> None:
    served, made = guarded
    there = routes(litestar(room))
    for role, text in made.items():
        headers = {"authorization": f"Bearer {text}"} if text else {}
        statuses: dict[tuple[str, str, str], int] = {}
        with httpx.Client(base_url=served.address, headers=headers, timeout=PATIENCE) as client:
            for method, path, action in there:
                filled = path.replace("{", "").replace("}", "")
                if action == "event.stream":  # of which there is no end
                    with client.stream(method, filled) as answer:
                        statuses[method, path, action] = answer.status_code
                else:
                    statuses[method, path, action] = client.request(method, filled).status_code
        assert max(statuses.values()) < 500
        _check(statuses, ACTIONS[role] if role else frozenset({Action.PUBLIC}), 403 if role else 401)


@pytest.mark.parametrize("right", list(Action))
def test_every_right_by_itself_opens_its_routes_and_no_other(room: Room, right: Action) -> None:
    text = tokens.create(room.engine, "ada", Role.VIEWER, allow=frozenset({right})).text
    access = Access(required=True)
    statuses = _statuses(room, access, {"authorization": f"Bearer {text}"})
    _check(statuses, ACTIONS[Role.VIEWER] | {right}, 403)


def test_a_stranger_does_not_learn_where_the_store_is(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Room, "health", lambda _: Health(False, 1.0, "redis://10.0.0.5:6379/0: refused"))
    bearer = {"authorization": f"Bearer {tokens.create(room.engine, 'ada', Role.VIEWER).text}"}
    made = secured(room, Access(required=True), hosts=["testserver.local"], keeper=False)
    with TestClient(made, base_url=BASE) as client:
        stranger, viewer = client.get("/readyz"), client.get("/readyz", headers=bearer)
    assert (stranger.status_code, stranger.json()["error"]) == (503, "the store does not answer")
    assert (viewer.status_code, "10.0.0.5" in viewer.json()["error"]) == (503, True)


def test_a_session_makes_no_session(room: Room) -> None:
    """Twelve hours are twelve hours: a stolen cookie must not prolong itself."""
    text = tokens.create(room.engine, "ada", Role.ADMIN).text
    made = secured(room, Access(required=True), hosts=["testserver.local"], keeper=False)
    with TestClient(made, base_url=BASE) as client:
        where = "/api/v1/session"
        assert client.post(where, headers={"authorization": f"Bearer {text}"}).status_code == 200
        assert client.get("/api/v1/queues").status_code == 200, "the cookie is good"
        refused = client.post(where)
        assert (refused.status_code, "set-cookie" in refused.headers) == (401, False)


def test_a_route_that_says_nothing_is_found_and_closed(room: Room) -> None:
    @get("/forgotten")
    async def forgotten() -> None:
        """Says not what it does."""

    made: Any = app(room, keeper=False, routes=[forgotten], guards=[auth.guard])
    unknown = [path for _, path, action in routes(inside(made)) if action not in RIGHTS]
    assert unknown == ["/api/v1/forgotten"]
    with TestClient(made, base_url=BASE) as client:
        assert client.get("/api/v1/forgotten").status_code == 403


@pytest.mark.parametrize("by", ["token", "session"])
def test_a_revoked_token_ends_what_listens_with_it(tmp_path: Path, by: str) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with postroom.open(url) as room:
        text = tokens.create(room.engine, "ada", Role.VIEWER).text
        with serving(url, tmp_path) as served, httpx.Client(base_url=served.api, timeout=PATIENCE) as client:
            bearer = {"authorization": f"Bearer {text}"}
            if by == "session":
                assert client.post("/session", headers=bearer).status_code == 200
            with client.stream("GET", "/events", headers=bearer if by == "token" else {}) as response:
                lines = response.iter_lines()
                assert next(line for line in lines if line.startswith("event:")) == "event: hello"
                tokens.revoke(room.engine, "ada")
                said = [line for line in lines if line.startswith("event:")]  # until it ends
            assert said[-1] == "event: bye"


def test_a_process_asks_for_a_token_and_tells_events(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with postroom.open(url) as room:
        text = tokens.create(room.engine, "ada", Role.ADMIN).text
    with serving(url, tmp_path) as served, httpx.Client(base_url=served.api, timeout=PATIENCE) as client:
        nobody = client.get("/queues")
        assert (nobody.json()["code"], nobody.headers["www-authenticate"]) == ("unauthorized", "Bearer")
        bearer = {"authorization": f"Bearer {text}"}
        assert client.post("/session", headers=bearer).json()["name"] == "ada"
        assert client.get("/queues").status_code == 200  # by the cookie
        evil = client.get("/queues", headers={"host": "evil.example"})
        assert (evil.status_code, evil.json()["code"]) == (421, "wrong_host")
        with client.stream("GET", "/events", headers={"accept-encoding": "gzip"}) as response:
            lines = response.iter_lines()
            assert next(line for line in lines if line.startswith("event:")) == "event: hello"
            message = {"body": 1}
            httpx.post(
                f"{served.api}/queues/emails/messages", headers=bearer, json=message, timeout=PATIENCE
            ).raise_for_status()
            pause = f"{served.api}/queues/emails/pause"
            httpx.post(pause, headers=bearer, json={}, timeout=PATIENCE).raise_for_status()
            event = next(line for line in lines if line == "event: lifecycle")
            assert event
            assert '"queue":"emails"' in next(line for line in lines if line.startswith("data:"))
            served.process.terminate()  # who listens is sent away, and does not hold the server up
            assert "event: bye" in list(lines)
        assert served.process.wait(PATIENCE) == 0
    with postroom.open(url) as room:
        assert "ada" in {act.by for act in acts_of(room)}


def test_the_table_of_the_server_is_obeyed_and_options_beat_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    table = '[http]\nhost = "::1"\nauth = "required"\nredact = ["iban"]\nread_only = true\nrate = "1000/s"\n'
    (tmp_path / "postroom.toml").write_text(table)
    options = ("--host", "127.0.0.1", "--no-read-only")
    with serving(url, tmp_path, *options) as served, httpx.Client(base_url=served.api) as client:
        assert client.get("/queues", timeout=PATIENCE).status_code == 401  # without any token yet
        with postroom.open(url) as room:
            text = tokens.create(room.engine, "ada", Role.ADMIN).text
        client.headers["authorization"] = f"Bearer {text}"
        put = client.post("/queues/emails/messages", json={"body": {"iban": "DE1"}}, timeout=PATIENCE)
        message = client.get(f"/queues/emails/messages/{put.json()['id']}", timeout=PATIENCE).json()
        assert message["body"] == {"iban": HIDDEN}
        config = client.get("/config", timeout=PATIENCE).json()
        settings, redaction = config["settings"], config["redaction"]
        assert redaction["names"] == ["iban"] and "password" in redaction["parts"]
        assert settings["http_host"] == {"value": "127.0.0.1", "origin": "argument"}
        assert settings["http_auth"] == {"value": "required", "origin": "postroom.toml"}


def test_a_client_that_is_too_fast_waits_and_one_behind_the_same_proxy_does_not(tmp_path: Path) -> None:
    url, rate = (
        f"sqlite:///{tmp_path}/jobs.db",
        {"POSTROOM_HTTP_AUTH": "required", "POSTROOM_HTTP_RATE": "1/h"},
    )
    with (
        serving(url, tmp_path, **rate) as served,
        httpx.Client(base_url=served.api, timeout=PATIENCE) as client,
    ):
        fast = [client.get("/session", headers={"x-forwarded-for": "192.0.2.7"}) for _ in range(3)]
        assert [answer.status_code for answer in fast] == [200, 200, 429]
        assert (fast[-1].json()["code"], fast[-1].headers["x-frame-options"]) == ("rate_limited", "DENY")
        assert 0 < int(fast[-1].headers["retry-after"]) <= 3_600
        assert client.get("/session", headers={"x-forwarded-for": "192.0.2.8"}).status_code == 200
    assert "429" in (log := (tmp_path / "serve.log").read_text()) and "from 192.0.2.7" in log


def acts_of(room: Room) -> list[audit.Act]:
    return audit.read(room.engine).acts


@pytest.mark.parametrize("read_only", [False, True])
def test_a_network_needs_a_token_or_read_only(tmp_path: Path, read_only: bool) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    if read_only:
        with serving(url, tmp_path, "--host", "0.0.0.0", "--read-only") as served:
            api = served.api.replace("0.0.0.0", "127.0.0.1")
            with httpx.Client(base_url=api, timeout=PATIENCE) as client:
                assert client.get("/queues").status_code == 200
                assert client.post("/queues/emails/messages", json={"body": 1}).status_code == 403
        return
    command = [
        sys.executable,
        "-m",
        "postroom.cli",
        "serve",
        "--url",
        url,
        "--port",
        "0",
        "--host",
        "0.0.0.0",
    ]
    ran = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 1
    assert "postroom token create" in ran.stderr
