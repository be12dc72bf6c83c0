"""Another payload before a replay: shown, checked and put as it is, and nothing of it is lost on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Locator, expect

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
