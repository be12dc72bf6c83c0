"""Tokens over HTTP: made, listed and revoked by who may give rights, and nothing given that one has not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from litestar.testing import TestClient

import postroom
from postroom import audit
from postroom.http import app, tokens
from postroom.http.auth import Access
from postroom.http.roles import Action, Role
from postroom.http.security import secured
from postroom.room import Room

BASE = "http://testserver.local"


@pytest.fixture
def room() -> Iterator[Room]:
    with postroom.open("memory://") as room:
        yield room


@pytest.fixture
def client(room: Room) -> Iterator[TestClient[Any]]:
    made = secured(room, Access(required=True), hosts=["testserver.local"], keeper=False)
    with TestClient(made, base_url=BASE) as client:
        yield client


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


@pytest.fixture
def admin(room: Room) -> dict[str, str]:
    return bearer(tokens.create(room.engine, "ada", Role.ADMIN).text)


def test_a_token_is_made_used_listed_and_revoked(
    room: Room, client: TestClient[Any], admin: dict[str, str]
) -> None:
    wanted = {"name": "shop", "role": "viewer", "allow": ["put"], "expires": "90d"}
    made = client.post("/api/v1/tokens", json=wanted, headers=admin)
    assert made.status_code == 201
    secret, id = made.json()["secret"], made.json()["token"]["id"]
    assert client.get("/api/v1/queues", headers=bearer(secret)).status_code == 200

    answer = client.get("/api/v1/tokens", headers=admin)
    ada, shop = answer.json()["tokens"]
    assert (ada["name"], ada["own"], shop["own"]) == ("ada", True, False)
    assert (shop["id"], shop["role"], shop["allow"]) == (id, "viewer", ["put"])
    assert shop["expires"] == shop["created"] + 90 * 86_400_000
    assert shop["last_used"] is not None
    secrets = [secret.split("_", 2)[2], *(record.digest for record in tokens.listed(room.engine))]
    assert not any(each in answer.text for each in secrets), "neither a secret nor a hash is told again"

    assert client.delete(f"/api/v1/tokens/{id}", headers=admin).status_code == 204
    assert client.get("/api/v1/queues", headers=bearer(secret)).status_code == 401, "here at once"
    assert client.delete(f"/api/v1/tokens/{id}", headers=admin).status_code == 404
    acts = [(act.event, act.by, act.info["name"]) for act in audit.read(room.engine).acts]
    assert acts == [("token.create", "ada", "shop"), ("token.revoke", "ada", "shop")]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_only_admins_give_rights(room: Room, client: TestClient[Any], role: Role) -> None:
    headers = bearer(tokens.create(room.engine, "bob", role).text)
    assert client.get("/api/v1/tokens", headers=headers).status_code == 403
    assert client.post("/api/v1/tokens", json={"name": "x"}, headers=headers).status_code == 403
    assert client.delete("/api/v1/tokens/bob", headers=headers).status_code == 403
    assert len(tokens.listed(room.engine)) == 1


def test_nobody_gives_what_they_have_not(room: Room, client: TestClient[Any]) -> None:
    made = tokens.create(room.engine, "desk", Role.VIEWER, allow=frozenset({Action.TOKEN, Action.PUT}))
    headers = bearer(made.text)
    for wanted in ({"role": "admin"}, {"role": "operator"}, {"allow": ["purge"]}):
        refused = client.post("/api/v1/tokens", json={"name": "x", **wanted}, headers=headers)
        assert refused.status_code == 403, wanted
    given = client.post("/api/v1/tokens", json={"name": "x", "allow": ["put", "token"]}, headers=headers)
    assert given.status_code == 201


def test_a_server_that_only_shows_gives_no_rights(room: Room, admin: dict[str, str]) -> None:
    made = secured(room, Access(required=True, read_only=True), hosts=["testserver.local"], keeper=False)
    with TestClient(made, base_url=BASE) as client:
        assert client.post("/api/v1/tokens", json={"name": "x"}, headers=admin).status_code == 403


@pytest.mark.parametrize(
    "wanted",
    [{}, {"name": ""}, {"name": "x", "role": "root"}, {"name": "x", "allow": ["all"]},
     {"name": "x", "expires": "soon"}, {"name": "x", "expires": 0}, {"name": "x", "secret": "mine"}],
)  # fmt: skip
def test_what_is_no_token_is_refused(
    client: TestClient[Any], admin: dict[str, str], wanted: dict[str, Any]
) -> None:
    assert client.post("/api/v1/tokens", json=wanted, headers=admin).status_code == 400


def test_an_application_that_mounts_the_room_has_no_such_routes(room: Room) -> None:
    with TestClient(app(room, keeper=False)) as client:
        assert client.get("/api/v1/tokens").status_code == 404
