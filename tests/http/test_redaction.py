"""Secrets are hidden by name and by looks, and what is harmless stays readable."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import ConfigError
from postroom.http.redaction import HIDDEN, Redaction

CARD = "4111 1111 1111 1111"
plain = Redaction()


@pytest.mark.parametrize(
    "name",
    ["password", "db_password", "PASSWORD", "X-Api-Key", "apiKey", "refreshToken", "Authorization", "secret",
     "client_secret", "Cookie", "set-cookie", "pin", "cvv", "card", "card_number", "private-key", "pwd"],
)  # fmt: skip
def test_a_secret_name_hides_whatever_stands_under_it(name: str) -> None:
    for value in ("x", 7, True, ["x"], {"deep": "x"}):
        assert plain.value({name: value}) == {name: HIDDEN}
    assert plain.headers({name: "x"}) == {name: HIDDEN}


@pytest.mark.parametrize("name", ["shipping", "opinion", "author", "pane", "discard", "keyboard", "company"])
def test_a_harmless_name_stays(name: str) -> None:
    assert plain.value({name: "x"}) == {name: "x"}


def test_it_reaches_everything_inside() -> None:
    body = [[1, {"user": {"name": "ada", "password": "hunter2"}}], {"cards": [CARD]}, None]
    shown = plain.value(body)
    assert shown == [[1, {"user": {"name": "ada", "password": HIDDEN}}], {"cards": [HIDDEN]}, None]
    assert body[0][1]["user"]["password"] == "hunter2"  # type: ignore[index]  # the nesting is known here


def test_nothing_under_a_secret_name_is_said() -> None:
    assert plain.value({"token": None, "password": ""}) == {"token": None, "password": ""}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"paid with {CARD}.", f"paid with {HIDDEN}."),
        ("4111111111111111", HIDDEN),
        ("378282246310005", HIDDEN),
        ("5555-5555-5555-4444", HIDDEN),
        ("Authorization: Bearer abcdef123456", f"Authorization: Bearer {HIDDEN}"),
        ("redis://user:hunter2@host/0", f"redis://user:{HIDDEN}@host/0"),
        ("connect(password='hunter2', host='a')", f"connect(password={HIDDEN}, host='a')"),
        ('{"api_key": "abc", "n": 1}', f'{{"api_key":"{HIDDEN}","n":1}}'),
        ('got {"api_key": "abc", "n": 1}', f'got {{"api_key": {HIDDEN}, "n": 1}}'),
        (r'{"k": "{\"pwd\": \"abc\"}"}', f'{{"k":"{{\\"pwd\\":\\"{HIDDEN}\\"}}"}}'),
        (r'sent "{\"pwd\": \"a b\", \"n\": 1}"', rf'sent "{{\"pwd\": {HIDDEN}, \"n\": 1}}"'),
        (r"password='it\'s' x", f"password={HIDDEN} x"),
        ("Authorization: Token abc", f"Authorization: {HIDDEN}"),
        ("GET http://host/?token=abc", f"GET http://host/?token={HIDDEN}"),
        ("url=http://host/?a=1&pwd=abc", f"url=http://host/?a=1&pwd={HIDDEN}"),
        ("?token=abc&page=2", f"?token={HIDDEN}&page=2"),
        ("pr_0123456789abcdef_" + "A" * 43, HIDDEN),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", HIDDEN),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----", HIDDEN),
    ],
)
def test_what_looks_like_a_secret_is_hidden_in_text(text: str, shown: str) -> None:
    assert plain.text(text) == shown


@pytest.mark.parametrize(
    "text",
    ["1704067200000", "4111111111111112", "order 17040672000001", "018f3c4111111111111111aa" + "0" * 8,
     '{"n":  1, "a": [1, "x"]}', "{not json", "[",
     "2026-01-02T03:04:05.678Z", "key: value", "http://host:8080/path", "+49 170 1234567"],
)  # fmt: skip
def test_what_is_harmless_stays_in_text(text: str) -> None:
    assert plain.text(text) == text


def test_a_card_as_a_number_is_a_card() -> None:
    assert plain.value([4111111111111111, 1704067200000, 4.5, True]) == [HIDDEN, 1704067200000, 4.5, True]


def test_bytes_are_never_shown() -> None:
    assert plain.value({"blob": b"hunter2"}) == {"blob": HIDDEN}


def test_rules_of_ones_own_come_on_top() -> None:
    mine = Redaction(names=["IBAN", "x-internal-*"], patterns=[r"cust-\d+"])
    assert mine.value({"iban": "DE1", "password": "x"}) == {"iban": HIDDEN, "password": HIDDEN}
    assert mine.headers({"X-Internal-Id": "7", "x-other": "for cust-42"}) == {
        "X-Internal-Id": HIDDEN, "x-other": f"for {HIDDEN}",
    }  # fmt: skip
    with pytest.raises(ConfigError, match="regular expression"):
        Redaction(patterns=["("])


@pytest.mark.parametrize(
    "text", ["eyJaaaaaaaa-", "a-", "ab=", "ab='x=\"", "1 ", '\\"a:', "://a:", "pwd= ", "\\"]
)
def test_no_text_takes_long(text: str) -> None:
    """Each is a step a character, or this would be minutes: the limit of every test."""
    assert plain.text(text * (1_000_000 // len(text)))


def test_names_of_ours_hide_nothing_and_their_texts_do() -> None:
    assert plain.texts({"queues": {"tokens": 3}, "told": ["pwd=x"]}) == {
        "queues": {"tokens": 3}, "told": [f"pwd={HIDDEN}"],
    }  # fmt: skip


def test_depth_has_an_end() -> None:
    deep: object = "hunter2"
    for _ in range(400):
        deep = [deep]
    assert "hunter2" not in json.dumps(plain.value(deep))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("password"), inner),
    max_leaves=20,
)


@given(JSON)
def test_whatever_comes_is_copied_and_stays_json(value: object) -> None:
    before = copy.deepcopy(value)
    json.dumps(plain.value(value))
    assert value == before


@given(st.text(min_size=8, alphabet="abcdefghij"), JSON)
def test_what_stands_under_a_password_never_comes_out(secret: str, around: object) -> None:
    marked = f"<<{secret}>>"
    assert marked not in json.dumps(plain.value([around, {"a": {"Password": [marked]}}]))
