"""`postroom token`: a token is shown once, listed without its secret, and revoked."""

from __future__ import annotations

from postroom import audit
from postroom.http import tokens
from postroom.http.roles import Action
from postroom.room import Room
from tests.cli.inside import Inside


def test_a_token_is_made_listed_and_revoked(inside: Inside, seen: Room) -> None:
    text = inside.run("token", "create", "ada", "--role", "admin", "--expires", "90d").out.strip()
    found = tokens.verify(seen.engine, text)
    assert found is not None
    assert found.expires == found.created + 90 * 86_400_000

    ran = inside.run("token", "ls")
    assert ran.out.splitlines()[1].split()[:3] == [found.id, "ada", "admin"]
    (said,) = inside.run("token", "ls", "--json").json
    assert said["last_used"] is not None
    assert text.split("_", 2)[2] not in ran.out + str(said)

    inside.run("token", "revoke", "ada")
    assert tokens.verify(seen.engine, text) is None
    inside.run("token", "revoke", "ada", code=3)


def test_making_and_revoking_are_in_the_audit(inside: Inside, seen: Room) -> None:
    made = inside.run("token", "create", "shop", "--allow", "put", "--json").json
    assert (made["role"], made["allow"]) == ("viewer", [Action.PUT])
    inside.run("token", "revoke", made["id"])
    acts = audit.read(seen.engine).acts
    assert [act.event for act in acts] == ["token.create", "token.revoke"]
    assert all(made["token"].split("_", 2)[2] not in str(act) for act in acts)


def test_what_is_wrong_is_said(inside: Inside) -> None:
    assert "viewer, operator, admin" in inside.run("token", "create", "x", "--role", "root", code=2).err
    assert "allow" in inside.run("token", "create", "x", "--allow", "fly", code=2).err
