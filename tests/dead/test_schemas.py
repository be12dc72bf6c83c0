"""An edited payload and the JSON Schema of its kind: what does not fit is refused before anything is put."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import audit
from postroom.config import load
from postroom.deadletters import DeadLetters
from postroom.errors import ConfigError, Conflict, InvalidInput, MissingExtra
from postroom.model import State
from postroom.room import Room

INVOICE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "minimum": 1},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    },
    "required": ["amount"],
}
CALL: dict[str, Any] = {
    "properties": {"args": {"prefixItems": [{"type": "integer"}]}, "kwargs": {"maxProperties": 0}}
}
TABLES = """
url = "memory://"
[kinds."billing.invoice"]
schema = "schemas/invoice.json"
[kinds."shop.pay"]
schema = "schemas/pay.json"
"""


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "invoice.json").write_text(json.dumps(INVOICE))
    (tmp_path / "schemas" / "pay.json").write_text(json.dumps(CALL))
    (tmp_path / "postroom.toml").write_text(TABLES)
    with postroom.open(config=load("postroom.toml")) as room:
        yield room


def dead(room: Room, body: Any = None, kind: str = "billing.invoice", **options: Any) -> str:
    queue = room.queue("q")
    id = queue.put({"amount": 0} if body is None else body, kind=kind, **options).id
    delivery = queue.claim()
    assert delivery
    delivery.bury("declined")
    return id


def test_what_fits_is_replayed_and_what_does_not_is_told_by_field(room: Room) -> None:
    id, queue = dead(room), room.queue("q")
    with pytest.raises(
        InvalidInput, match=r'schema of billing.invoice says: lines\[1\]\.n: "x" is not of type'
    ):
        queue.replay(id, body={"amount": 2, "lines": [{"n": 1}, {"n": "x"}]})
    with pytest.raises(InvalidInput, match=r'body: "amount" is a required property'):
        DeadLetters(room).replay([id], edit=lambda _: {})
    assert (queue.stats().ready, queue.get(id).replayed_as) == (0, ())
    queue.replay(id, body={"amount": 2})
    assert queue.stats().ready == 1


def test_as_it_was_or_of_another_kind_nothing_is_asked(room: Room) -> None:
    first, second, third = dead(room), dead(room, kind="other"), dead(room)
    room.queue("q").replay(first)
    room.queue("q").replay(second, body={"amount": 0})
    room.queue("q").replay(third, body=b"\x00")
    assert room.queue("q").stats().ready == 3


def test_a_dry_run_says_the_same_and_puts_nothing(room: Room) -> None:
    id, queue = dead(room), room.queue("q")
    for replay in (
        lambda body: queue.replay(id, body=body, dry_run=True),
        lambda body: DeadLetters(room).replay([id], edit=lambda _: body, dry_run=True),
    ):
        with pytest.raises(InvalidInput, match="amount: 0 is less than the minimum"):
            replay({"amount": 0})
        replay({"amount": 1})
    assert (queue.stats().ready, audit.read(room.engine).acts) == (0, [])
    waiting = queue.put(1).id
    with pytest.raises(Conflict, match="it is ready"):
        queue.replay(waiting, dry_run=True)
    assert queue.get(waiting).state is State.READY


def test_of_a_task_of_celery_it_is_the_call(room: Room) -> None:
    headers = {"task": "shop.pay", "id": "task-1"}
    id = dead(room, [[7], {}, {}], kind="shop.pay", headers=headers, correlation_id="task-1")
    with pytest.raises(InvalidInput, match=r'args\[0\]: "x" is not of type "integer"'):
        room.queue("q").replay(id, body={"args": ["x"]})
    room.queue("q").replay(id, body={"args": [8]})
    delivery = room.queue("q").claim()
    assert delivery and delivery.body == [[8], {}, {}]


def test_an_edited_file_is_read_again(room: Room, tmp_path: Path) -> None:
    id = dead(room)
    room.queue("q").replay(id, body={"amount": 5}, dry_run=True)
    (tmp_path / "schemas" / "invoice.json").write_text('{"properties": {"amount": {"maximum": 4}}}')
    with pytest.raises(InvalidInput, match="amount: 5 is greater than the maximum of 4"):
        room.queue("q").replay(id, body={"amount": 5}, dry_run=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is no JSON Schema"),
        ('{"type": "objekt"}', "is no JSON Schema"),
        ('{"$ref": "http://127.0.0.1:9/x.json"}', "is no JSON Schema.*is not fetched"),
        (None, "cannot be read"),
    ],
)
def test_a_schema_that_cannot_be_used_is_said_and_nothing_is_put(
    room: Room, tmp_path: Path, text: str | None, says: str
) -> None:
    file = tmp_path / "schemas" / "invoice.json"
    file.unlink()
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=f"invoice.json {says}"):
        room.queue("q").replay(dead(room), body={"amount": 1})
    assert room.queue("q").stats().ready == 0


def test_without_the_package_it_is_said_what_to_install(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    id = dead(room)
    with pytest.raises(MissingExtra, match=r"pip install 'postroom\[schema\]'"):
        room.queue("q").replay(id, body={"amount": 1, "lines": []})
    room.queue("q").replay(id)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[kinds.a]\nshema = "x"', r"\[kinds.a\] shema: .*schema"),
        ("[kinds.a]\nschema = 3", "expected the name of a file"),
        ('[kinds.a.b]\nschema = "x"', r"a name with a dot is written \[kinds.\"a.b\"\]"),
        ("kinds = 3", "expected tables such as"),
    ],
)
def test_a_wrong_table_is_a_wrong_configuration(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "wrong.toml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        load(tmp_path / "wrong.toml")
