"""Tokens: made once, kept as hashes, gone when they are revoked or have expired."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import postroom
from postroom.engine import Engine
from postroom.engines.memory import MemoryEngine
from postroom.errors import Conflict, InvalidInput, NotFound
from postroom.http import tokens
from postroom.http.roles import ACTIONS, Action, Role, read_actions, read_role
from postroom.testing.clock import ManualClock

MINUTE = 60_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(clock: ManualClock) -> Iterator[Engine]:
    engine = MemoryEngine(clock)
    yield engine
    engine.close()


def stored(engine: Engine) -> bytes:
    return b"".join(record.value for record in engine.records.list(tokens.KIND))


def test_a_token_is_verified_by_its_whole_text(engine: Engine) -> None:
    made = tokens.create(engine, "ada", Role.OPERATOR)
    found = tokens.verify(engine, made.text)
    assert found is not None
    assert (found.id, found.name, found.role) == (made.token.id, "ada", Role.OPERATOR)


def test_hashes_are_compared_in_constant_time(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = list[tuple[str, str]]()
    real = hmac.compare_digest

    def watched(one: str, other: str) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    made = tokens.create(engine, "ada", Role.VIEWER)
    wrong = f"pr_{made.token.id}_{'A' * 43}"
    assert (tokens.verify(engine, wrong), tokens.verify(engine, made.text) is None) == (None, False)
    assert [one for one, _ in compared] == [made.token.digest] * 2


@pytest.mark.parametrize("change", ["last", "first", "short", "long", "id", "empty", "other"])
def test_any_other_text_is_not_a_token(engine: Engine, change: str) -> None:
    text = tokens.create(engine, "ada", Role.ADMIN).text
    head, id, secret = text.split("_", 2)
    changed = {
        "last": text[:-1] + ("A" if text[-1] != "A" else "B"),
        "first": f"{head}_{id}_{'A' if secret[0] != 'A' else 'B'}{secret[1:]}",
        "short": text[:-1],
        "long": text + "A",
        "id": f"{head}_{'0' * 16}_{secret}",
        "empty": "",
        "other": tokens.create(MemoryEngine(), "ada", Role.ADMIN).text,
    }
    assert tokens.verify(engine, changed[change]) is None


def test_the_store_never_holds_the_secret(engine: Engine) -> None:
    made = tokens.create(engine, "ada", Role.ADMIN)
    secret = made.text.split("_", 2)[2]
    assert len(secret) == 43  # 256 bits
    assert secret.encode() not in stored(engine)
    assert made.token.digest.encode() in stored(engine)


def test_two_tokens_have_nothing_in_common(engine: Engine) -> None:
    one, other = (tokens.create(engine, "ada", Role.ADMIN) for _ in range(2))
    assert one.token.id != other.token.id
    assert one.text.split("_", 2)[2] != other.text.split("_", 2)[2]


def test_a_revoked_token_is_none(engine: Engine) -> None:
    made = tokens.create(engine, "ada", Role.ADMIN)
    assert tokens.revoke(engine, "ada").id == made.token.id
    assert tokens.verify(engine, made.text) is None
    with pytest.raises(NotFound):
        tokens.revoke(engine, "ada")


def test_of_two_with_one_name_the_id_says_which(engine: Engine) -> None:
    one, other = (tokens.create(engine, "ci", Role.VIEWER) for _ in range(2))
    with pytest.raises(Conflict, match="2 tokens"):
        tokens.revoke(engine, "ci")
    tokens.revoke(engine, one.token.id)
    assert [token.id for token in tokens.listed(engine)] == [other.token.id]


def test_a_token_expires_by_the_engines_clock(engine: Engine, clock: ManualClock) -> None:
    made = tokens.create(engine, "ada", Role.ADMIN, ttl=5 * MINUTE)
    clock.advance("4m")
    assert tokens.verify(engine, made.text) is not None  # and being used does not prolong it
    clock.advance("1m")
    assert tokens.verify(engine, made.text) is None
    assert tokens.listed(engine) == []


def test_last_used_is_written_once_a_minute(engine: Engine, clock: ManualClock) -> None:
    made = tokens.create(engine, "ada", Role.ADMIN)
    assert tokens.listed(engine)[0].last_used is None
    tokens.verify(engine, made.text)
    first = clock()
    clock.advance("30s")
    tokens.verify(engine, made.text)
    assert tokens.listed(engine)[0].last_used == first
    clock.advance("31s")
    tokens.verify(engine, made.text)
    assert tokens.listed(engine)[0].last_used == clock()


def test_being_used_does_not_bring_a_revoked_token_back(engine: Engine) -> None:
    """The note of its use is written by compare-and-set: a revoke in between wins."""
    made = tokens.create(engine, "ada", Role.ADMIN)
    record = engine.records.get(tokens.KIND, made.token.id)
    assert record is not None
    tokens.revoke(engine, "ada")
    tokens._used(engine, made.token, record.version)
    assert tokens.listed(engine) == []


def test_rights_beyond_the_role_are_the_tokens_own(engine: Engine) -> None:
    made = tokens.create(engine, "shop", Role.VIEWER, allow=frozenset({Action.PUT}))
    found = tokens.verify(engine, made.text)
    assert found is not None
    assert found.actions == ACTIONS[Role.VIEWER] | {Action.PUT}


def test_names_are_checked(engine: Engine) -> None:
    with pytest.raises(InvalidInput):
        tokens.create(engine, "", Role.VIEWER)
    with pytest.raises(InvalidInput, match="viewer, operator, admin"):
        read_role("root")
    with pytest.raises(InvalidInput, match="purge"):
        read_actions(["everything"])


def test_there_is_a_most(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_TOKENS", 2)
    for _ in range(2):
        tokens.create(engine, "ci", Role.VIEWER)
    with pytest.raises(Conflict, match="revoke"):
        tokens.create(engine, "ci", Role.VIEWER)


def test_a_token_outlives_its_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with postroom.open(url) as room:
        made = tokens.create(room.engine, "ada", Role.ADMIN)
    with postroom.open(url) as room:
        found = tokens.verify(room.engine, made.text)
    assert found is not None
    assert msgspec.structs.replace(found, last_used=None) == made.token


def test_roles_grow() -> None:
    assert ACTIONS[Role.VIEWER] < ACTIONS[Role.OPERATOR] < ACTIONS[Role.ADMIN] == frozenset(Action)
    forbidden = {Action.RAW, Action.PURGE, Action.DROP, Action.DISCARD, Action.TOKEN, Action.DECLARE}
    assert not ACTIONS[Role.OPERATOR] & forbidden
