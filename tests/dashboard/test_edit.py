"""Another payload before a replay: shown, checked and put as it is, and nothing of it is lost on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kombu
import pytest
from celery import Celery
from playwright.sync_api import Locator, expect

from postroom import Policy
from postroom.celery import close_offices
from postroom.room import Room
from tests.dashboard.eyes import Eyes
from tests.dashboard.test_dead import kill
from tests.http.servers import Served, serving

Look = Callable[..., Eyes]


def edit(eyes: Eyes) -> tuple[Locator, Locator]:
    """The dialog of the letter in sight, and the button that sends."""
    eyes.page.get_by_role("button", name="Edit and replay…").click()
    dialog = eyes.page.get_by_role("dialog", name="Replay with another payload")
    return dialog, dialog.get_by_role("button", name="Replay with this payload")


def test_an_edited_payload_is_held_against_its_schema_before_it_is_sent(
    look: Look, room: Room, url: str, tmp_path: Path
) -> None:
    (tmp_path / "charge.json").write_text('{"properties": {"n": {"type": "integer", "minimum": 1}}}')
    (tmp_path / "postroom.toml").write_text('[kinds.charge]\nschema = "charge.json"')
    (id,) = kill(room, "declined")
    with serving(url, tmp_path) as served:
        eyes = look(served, f"/dead/pay/{id}")
        eyes.forgive("status of 400")
        dialog, send = edit(eyes)
        dialog.get_by_label("Payload").fill('{"n": 0}')
        expect(dialog.get_by_role("alert")).to_contain_text("n: 0 is less than the minimum of 1")
        expect(send).to_be_disabled()
        dialog.get_by_label("Payload").fill('{"n": 1}')
        expect(send).to_be_enabled()
        expect(dialog.get_by_role("alert")).to_have_count(0)
        assert room.queue("pay").stats().ready == 0
        send.click()
        expect(eyes.page.get_by_text("Replayed with another payload")).to_be_visible()
        eyes.close()
    (delivery,) = room.queue("pay").claim_many(1)
    assert delivery.body == {"n": 1}


def test_long_numbers_are_kept_to_the_last_digit(look: Look, served: Served, room: Room) -> None:
    queue = room.queue("pay")
    id = queue.put({"account": 2**53 + 1, "order": "12345678901234567890", "cents": 5}).id
    (delivery,) = queue.claim_many(1)
    delivery.bury(RuntimeError("declined"))
    dialog, send = edit(look(served, f"/dead/pay/{id}"))
    field = dialog.get_by_label("Payload")
    field.fill(field.input_value().replace("5\n", "10000000000000000000000000000001\n"))
    expect(dialog.locator("ins")).to_have_text('  "cents": 10000000000000000000000000000001')
    send.click()
    expect(dialog).to_have_count(0)
    (delivery,) = queue.claim_many(1)
    assert delivery.body == {"account": 2**53 + 1, "order": "12345678901234567890", "cents": 10**31 + 1}


#: A browser from before numbers could be read and written by their source.
_OLDER = """const parse = JSON.parse;
JSON.parse = (text, reviver) =>
  parse(text, reviver && function (name, value) { return reviver.call(this, name, value); });
delete JSON.rawJSON;"""


def test_a_browser_that_would_round_them_says_so(look: Look, served: Served, room: Room) -> None:
    queue = room.queue("pay")
    id = queue.put({"account": 2**53 + 1}).id
    (delivery,) = queue.claim_many(1)
    delivery.bury(RuntimeError("declined"))
    eyes = look(served)
    eyes.context.add_init_script(_OLDER)
    eyes.page.reload()
    eyes.go(f"/dead/pay/{id}")
    dialog, send = edit(eyes)
    dialog.get_by_label("Payload").fill('{"account": 9007199254740995}')
    expect(dialog.get_by_role("alert")).to_contain_text("cannot keep numbers that are so long")
    expect(send).to_be_disabled()


def test_only_another_value_is_a_change_and_null_is_none(look: Look, served: Served, room: Room) -> None:
    (id,) = kill(room, "declined")
    dialog, send = edit(look(served, f"/dead/pay/{id}"))
    field = dialog.get_by_label("Payload")
    field.fill('{"n":0,     "user":{"id":40}}')
    expect(dialog).to_contain_text("Nothing is changed yet.")
    field.fill("null")
    expect(dialog.get_by_role("alert")).to_contain_text("it would be replayed as it is")
    expect(send).to_be_disabled()


# ---- tasks of Celery -------------------------------------------------------------------------------


@pytest.fixture
def shop(url: str) -> Iterator[Celery]:
    """An app whose broker is the room that the server shows."""
    with Celery("shop", broker=f"postroom+{url}", set_as_current=False) as app:
        yield app
    close_offices()


def dead_task(shop: Celery, room: Room, *args: Any, kwargs: Any = None, **options: Any) -> str:
    """A task that was published, and that its worker gave up; where its letter is."""
    shop.send_task("shop.pay", args, kwargs, queue="pay", **options)
    (delivery,) = room.queue("pay").claim_many(1)
    delivery.bury(RuntimeError("declined"))
    return f"/dead/pay/{delivery.id}"


def received(shop: Celery) -> kombu.Message:
    """What a worker of Celery gets next."""
    with shop.connection_for_read() as connection:
        message = kombu.Queue("pay", channel=connection.default_channel).get(no_ack=True)
    assert message is not None
    return message


def test_the_call_of_a_celery_task_is_edited(look: Look, served: Served, room: Room, shop: Celery) -> None:
    receipt = shop.signature("shop.receipt", args=["ada"])
    eyes = look(served, dead_task(shop, room, 7, "EUR", kwargs={"invoice": 2**53 + 1}, link=receipt))
    eyes.forgive("status of 400")
    dialog, send = edit(eyes)
    field = dialog.get_by_label("Payload")
    call = {"args": [7, "EUR"], "kwargs": {"invoice": 2**53 + 1}}
    expect(field).to_have_value(json.dumps(call, indent=2))
    expect(send).to_be_disabled()

    field.fill('{"args": [8, ')
    expect(dialog.get_by_role("alert")).to_contain_text("This is not JSON")
    for wrong in ('{"invoice": 8}', "[8]", '{"args": 8}', '{"args": [8], "kwargs": []}', '"8"'):
        field.fill(wrong)
        expect(dialog.get_by_role("alert")).to_contain_text('the payload of a Celery task is {"args"')
        expect(send).to_be_disabled()
        expect(field).to_have_value(wrong)
    assert room.queue("pay").stats().ready == 0

    field.fill('{"args": [8, "EUR"]}')
    change = dialog.get_by_role("figure", name="What will be different")
    expect(change.locator("del")).to_have_text(["    7,"])
    expect(change.locator("ins")).to_have_text(["    8,"])
    expect(change).to_contain_text('"invoice": 9007199254740993')
    send.click()
    expect(eyes.page.get_by_text("Replayed with another payload")).to_be_visible()
    message = received(shop)
    args, kwargs, after = message.payload
    assert (args, kwargs) == ([8, "EUR"], {"invoice": 2**53 + 1})
    assert [each["task"] for each in after["callbacks"]] == ["shop.receipt"]
    assert (message.headers["task"], message.headers["retries"]) == ("shop.pay", 0)


def test_the_call_of_a_dead_task_stands_beside_one_that_succeeded(
    look: Look, served: Served, room: Room, shop: Celery
) -> None:
    queue = room.queue("pay", Policy(keep_done="1h"))
    for name, currency in (("shop.pay", "EUR"), ("shop.refund", "CHF")):  # the other task is no match
        shop.send_task(name, [5, currency], {"password": "hunter2"}, queue="pay")
        for delivery in queue.claim_many(1):
            delivery.ack()
    page = look(served, dead_task(shop, room, 10, "EUR", kwargs={"password": "sesame"})).page
    beside = page.get_by_role("figure", name="This payload beside one that succeeded")
    expect(beside.locator("del")).to_have_text(["    5,"])
    expect(beside.locator("ins")).to_have_text(["    10,"])
    expect(beside).to_contain_text('"kwargs": {')
    expect(beside).not_to_contain_text("hunter2")
    expect(beside).not_to_contain_text("callbacks")


def test_a_part_of_a_call_that_is_hidden_is_left_out_and_stays(
    look: Look, served: Served, room: Room, shop: Celery
) -> None:
    dialog, send = edit(look(served, dead_task(shop, room, 7, kwargs={"password": "hunter2"})))
    field = dialog.get_by_label("Payload")
    expect(dialog.get_by_role("alert")).to_contain_text("leave out args or kwargs, whichever holds them")
    field.fill('{"args": [7]}')
    expect(dialog).to_contain_text("Nothing is changed yet.")
    field.fill('{"args": [8]}')
    send.click()
    expect(dialog).to_have_count(0)
    assert received(shop).payload[:2] == [[8], {"password": "hunter2"}]


def test_an_edited_call_is_held_against_the_schema_of_its_task(
    look: Look, room: Room, url: str, tmp_path: Path, shop: Celery
) -> None:
    (tmp_path / "pay.json").write_text('{"properties": {"args": {"prefixItems": [{"type": "integer"}]}}}')
    (tmp_path / "postroom.toml").write_text('[kinds."shop.pay"]\nschema = "pay.json"')
    where = dead_task(shop, room, 7)
    with serving(url, tmp_path) as served:
        eyes = look(served, where)
        eyes.forgive("status of 400")
        dialog, send = edit(eyes)
        dialog.get_by_label("Payload").fill('{"args": ["x"]}')
        expect(dialog.get_by_role("alert")).to_contain_text('args[0]: "x" is not of type "integer"')
        expect(send).to_be_disabled()
        dialog.get_by_label("Payload").fill('{"args": [8]}')
        expect(send).to_be_enabled()
        eyes.close()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"serializer": "pickle"}, "application/x-python-serialize, and to read that would run code"),
        ({"serializer": "yaml"}, "application/x-yaml, which is neither JSON nor text"),
        ({"compression": "gzip"}, "its body is compressed (application/x-gzip)"),
    ],
    ids=["pickle", "yaml", "gzip"],
)
def test_what_cannot_be_edited_says_why(
    look: Look, served: Served, room: Room, shop: Celery, options: dict[str, str], why: str
) -> None:
    page = look(served, dead_task(shop, room, "ada", kwargs={"amount": 7}, **options)).page
    payload = page.locator(".card", has=page.get_by_role("heading", name="Payload"))
    expect(payload).to_contain_text("'ada'")
    expect(payload).to_contain_text("'amount': 7")
    expect(payload).to_contain_text("It can be replayed as it is, but not edited")
    expect(payload).to_contain_text(why)
    expect(page.get_by_role("button", name="Replay", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Edit and replay…")).to_have_count(0)


def test_bytes_say_why_they_cannot_be_edited(look: Look, served: Served, room: Room) -> None:
    id = room.queue("pay").put(b"\x00\xff").id
    (delivery,) = room.queue("pay").claim_many(1)
    delivery.bury(RuntimeError("declined"))
    page = look(served, f"/dead/pay/{id}").page
    payload = page.locator(".card", has=page.get_by_role("heading", name="Payload"))
    expect(payload).to_contain_text("its body is application/octet-stream, which is neither JSON nor text")
    expect(page.get_by_role("button", name="Edit and replay…")).to_have_count(0)
