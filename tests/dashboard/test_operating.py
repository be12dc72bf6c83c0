"""Workers, breakers, events, configuration and audit in the browser."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import expect

from postroom import Worker, audit, staff
from postroom.breaker import Breaker
from postroom.http import tokens
from postroom.http.roles import ACTIONS, Action, Role
from postroom.room import Room
from tests.dashboard.eyes import Eyes
from tests.http.servers import PATIENCE, Served, serving

Look = Callable[..., Eyes]


def tell(room: Room, info: staff.WorkerInfo) -> None:
    """A worker that says this of itself, once."""
    staff.Attendance(room.engine, lambda: info).beat()


def test_a_worker_is_shown_while_it_works(look: Look, served: Served, room: Room) -> None:
    with Worker(room, {"emails": print}, name="desk-7"):
        page = look(served, "/workers").page
        row = page.get_by_role("row", name="desk-7")
        expect(row).to_contain_text("emails")
        expect(row).to_contain_text("idle")
    expect(page.get_by_text("Nobody works here")).to_be_visible()


def test_what_a_worker_runs_now_is_in_its_lane(look: Look, served: Served, room: Room) -> None:
    room.queue("emails").put({}, kind="send")
    done = threading.Event()
    try:
        with Worker(room, {"emails": lambda _: done.wait()}, name="desk-7", concurrency=2):
            page = look(served, "/workers").page
            places = page.get_by_role("list", name="Places of desk-7").get_by_role("listitem")
            expect(places).to_have_count(2)
            expect(places.nth(0)).to_contain_text("send")
            expect(places.nth(0).locator("time.countdown")).to_be_visible()
            expect(places.nth(1)).to_have_text("free")
            done.set()
            expect(places.nth(0)).to_have_text("free")
    finally:
        done.set()


def test_a_worker_is_told_to_be_quiet_to_go_on_and_to_stop(
    look: Look, served: Served, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staff, "BEAT", 100)
    worker = Worker(room, {"emails": print}, name="desk-7")
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        page = look(served, "/workers").page
        row = page.get_by_role("row", name="desk-7")
        page.get_by_role("button", name="Quiet desk-7").click()
        expect(row).to_contain_text("quiet")
        expect(page.get_by_role("button", name="Resume desk-7")).to_be_visible()
        page.get_by_role("status").get_by_role("button", name="Undo").click()
        expect(row).to_contain_text("idle")
        page.get_by_role("button", name="Stop desk-7").click()
        dialog = page.get_by_role("dialog", name="Stop desk-7")
        expect(dialog).to_contain_text("finishes what it began")
        dialog.get_by_label("Reason").fill("a new release")
        dialog.get_by_role("button", name="Stop it").click()
        expect(page.get_by_text("Nobody works here")).to_be_visible()
        thread.join(PATIENCE)
        assert not thread.is_alive()
    finally:
        worker.stop()
    said = [(act.event, act.info.get("reason")) for act in audit.read(room.engine).acts]
    assert said == [("quiet_worker", None), ("resume_worker", None), ("stop_worker", "a new release")]


def test_a_breaker_is_closed_by_hand(look: Look, served: Served, room: Room) -> None:
    Breaker("bank", room=room).open("they called")
    page = look(served, "/breakers").page
    row = page.get_by_role("row", name="bank")
    expect(row).to_contain_text("they called")
    page.get_by_role("button", name="Close bank").click()
    dialog = page.get_by_role("dialog", name="Close bank")
    dialog.get_by_label("Reason").fill("they called again")
    dialog.get_by_role("button", name="Close it").click()
    expect(row).to_contain_text("closed")
    assert Breaker("bank", room=room).standing.state == "closed"


def test_a_breaker_is_opened_for_a_while(look: Look, served: Served, room: Room) -> None:
    with Breaker("bank", room=room):
        pass
    page = look(served, "/breakers").page
    page.get_by_role("button", name="Open bank").click()
    dialog = page.get_by_role("dialog", name="Open bank")
    dialog.get_by_label("For how long").select_option("30 minutes")
    dialog.get_by_label("Reason").fill("they move house")
    dialog.get_by_role("button", name="Open it").click()
    row = page.get_by_role("row", name="bank")
    expect(row).to_contain_text("by hand")
    expect(row.locator("time.countdown")).to_contain_text(re.compile(r"\d+:\d\d"))
    found = Breaker("bank", room=room).standing
    assert (found.forced, found.lasts, found.reason) == (True, 30 * 60_000, "they move house")


def test_a_breaker_shows_its_day_and_when_it_is_tried_again(look: Look, served: Served, room: Room) -> None:
    breaker = Breaker("bank", room=room, threshold=2, cooldown="10m")
    breaker.failed("no answer")
    breaker.failed("no answer")
    page = look(served, "/breakers").page
    row = page.get_by_role("row", name="bank")
    expect(row.get_by_role("img", name="open 1 time")).to_be_visible()
    expect(row.locator("time.countdown")).to_contain_text(re.compile(r"\d:\d\d"))
    breaker.close("they are back")
    changes = page.get_by_role("list", name="Changes of breakers").get_by_role("listitem")
    expect(changes).to_have_count(2)
    expect(changes.first).to_contain_text("they are back")


def test_a_breaker_shows_the_calls_that_opened_it(look: Look, served: Served, room: Room) -> None:
    breaker = Breaker("bank", room=room, threshold=2, cooldown="10m")
    breaker.succeeded()
    breaker.failed("no answer")
    breaker.failed("reset by peer")
    page = look(served, "/breakers").page
    strip = page.get_by_role("row", name="bank").get_by_role("img", name="1 went well, 2 failed, 0 refused")
    expect(strip).to_be_visible()
    expect(strip.locator("i.bad").last).to_have_attribute("title", re.compile("failure: reset by peer"))


def test_what_a_breaker_holds_back_is_told_wherever_it_waits(look: Look, served: Served, room: Room) -> None:
    bank = Breaker("bank", room=room)
    bank.open("their certificate has expired")
    queue = room.queue("pay")
    puts = queue.put_many([{"n": n} for n in range(3)])
    queue.put({}, delay="1h")
    with Worker(room, {"pay": print}, name="desk-7", breakers={"pay": bank}):
        eyes = look(served, "/breakers")
        page = eyes.page
        row = page.get_by_role("row", name="bank")
        expect(row).to_contain_text("3 of pay")
        row.get_by_role("link", name="pay").click()
        expect(page.locator("h1")).to_contain_text("Held back")
        expect(page.locator(".page-title")).to_contain_text(
            "breaker bank is open (their certificate has expired); 3 messages wait"
        )
        eyes.go(f"/queues/pay/messages/{puts[0].id}")
        expect(page.locator("p.strip")).to_contain_text("breaker bank is open")
        eyes.go("/scheduled")
        expect(page.get_by_role("table", name="Scheduled messages")).to_contain_text("held back")
        eyes.go("/queues")
        expect(page.get_by_role("row", name="pay")).to_contain_text("Held back")
        bank.close("they have a new one")
        expect(page.get_by_role("row", name="pay")).not_to_contain_text("Held back")


def test_events_come_as_they_happen(look: Look, served: Served, room: Room) -> None:
    page = look(served, "/events").page
    expect(page.get_by_role("button", name="Live", exact=True)).to_be_visible()
    expect(page.get_by_text("Nothing has happened yet")).to_be_visible()
    queue = room.queue("emails")
    queue.put({})
    queue.pause("a test")
    room.queue("pay").put({})
    delivery = room.queue("pay").claim()
    assert delivery
    delivery.bury("declined")
    tail = page.get_by_role("list", name="Events")
    expect(tail).to_contain_text("pause")
    expect(tail).to_contain_text("move to dlq")
    page.get_by_role("searchbox", name="Filter events").fill("move_to_dlq pay")
    expect(tail.get_by_role("listitem")).to_have_count(1)


def test_a_topic_is_read_entry_by_entry(look: Look, served: Served, room: Room) -> None:
    page = look(served, "/events?tab=topics").page
    expect(page.get_by_text("No topic yet")).to_be_visible()
    room.engine.publish("orders", [b'{"order": 7}', b'{"order": 8}'])
    room.engine.publish("returns", [b'{"order": 3}'])
    page.reload()
    rows = page.get_by_role("table", name="Entries of orders").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text('"order":7')
    rows.nth(1).click()
    expect(page.get_by_role("dialog", name="Entry of orders")).to_contain_text("8")
    page.keyboard.press("Escape")
    page.get_by_role("combobox", name="Topic").select_option("returns")
    expect(page.get_by_role("table", name="Entries of returns")).to_contain_text('"order":3')


def test_a_topic_tells_who_reads_it_and_how_far_the_slowest_is_behind(
    look: Look, served: Served, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.engine.publish("returns", [b'{"order": 3}'])
    begin = room.engine.read("orders").cursor
    room.engine.publish("orders", [b'{"order": 7}'])
    end = room.engine.read("orders").cursor
    waited = room.engine.read("orders", after="").entries[0].at + 90_000
    # A beat 90 s later, which no test waits for: the record ends so much later, too.
    monkeypatch.setattr(staff, "KEPT", staff.KEPT + waited - room.engine.now())
    for name, cursor in (("web-1", begin), ("web-2", end)):
        tell(room, msgspec.structs.replace(staff.this_process(name), reads=(("orders", cursor),)))
    page = look(served, "/events?tab=topics").page
    told = page.get_by_role("status", name="Subscribers")
    expect(told).to_contain_text(re.compile(r"2 known subscribers · the slowest is 1 min 3\d s behind web-1"))
    expect(page.get_by_text("readers that do not report")).to_be_visible()
    page.get_by_role("combobox", name="Topic").select_option("returns")
    expect(told).to_have_text("No known subscriber")


def test_what_operators_did_is_a_key_away_from_every_page(look: Look, served: Served, room: Room) -> None:
    room.queue("emails").put({})
    room.queue("emails").pause("the provider is away")
    page = look(served, "/queues").page
    expect(page.get_by_role("link", name="emails")).to_be_visible()
    page.keyboard.press("a")
    acts = page.get_by_role("dialog", name="What operators did").get_by_role("list", name="Acts")
    expect(acts.get_by_role("listitem")).to_have_count(1)
    expect(acts).to_contain_text("the provider is away")
    room.queue("emails").resume()
    expect(acts.get_by_role("listitem")).to_have_count(2)
    acts.get_by_role("link", name="emails").first.click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("heading", name="emails", level=1)).to_be_visible()


def test_a_token_is_made_shown_once_and_revoked(
    look: Look, url: str, tmp_path: Path, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = tokens.create(room.engine, "ada", Role.ADMIN).text
    with serving(url, tmp_path) as served:
        eyes = look(served, "/settings?tab=tokens")
        eyes.forgive("status of 401")
        page = eyes.page
        page.get_by_label("Token").fill(admin)
        page.get_by_role("button", name="Log in").click()
        table = page.get_by_role("table", name="Tokens")
        expect(table.get_by_role("row", name="ada")).to_contain_text("you")
        page.get_by_role("button", name="New token").click()
        page.get_by_label("Whose").fill("shop")
        page.get_by_label("put messages").check()
        page.get_by_role("button", name="Make it").click()
        shown = page.get_by_role("dialog", name="Copy it now")
        secret = shown.locator(".secret code").inner_text()
        assert tokens.verify(room.engine, secret)
        shown.get_by_role("button", name="I have it").click()
        row = table.get_by_role("row", name="shop")
        expect(row).to_contain_text("and put")
        expect(page.get_by_text(secret)).to_have_count(0)
        page.get_by_role("button", name="Revoke shop").click()
        page.get_by_role("dialog").get_by_role("button", name="Revoke it").click()
        expect(row).to_have_count(0)
        assert tokens.verify(room.engine, secret) is None
        page.get_by_role("button", name="Revoke ada").click()
        expect(page.get_by_role("dialog")).to_contain_text("the one you are using now")
        page.get_by_role("dialog").get_by_role("button", name="Revoke it").click()
        expect(page.get_by_label("Token")).to_be_visible()
        eyes.close()


def test_who_may_not_give_rights_sees_no_tokens(look: Look, url: str, tmp_path: Path, room: Room) -> None:
    text = tokens.create(room.engine, "bob", Role.OPERATOR).text
    with serving(url, tmp_path) as served:
        eyes = look(served, "/settings?tab=tokens")
        eyes.forgive("status of 401")
        eyes.page.get_by_label("Token").fill(text)
        eyes.page.get_by_role("button", name="Log in").click()
        expect(eyes.page.get_by_role("button", name="Audit")).to_be_visible()
        expect(eyes.page.get_by_role("button", name="Tokens")).to_have_count(0)
        eyes.close()


def test_settings_tell_what_the_engine_can_and_what_each_role_may(look: Look, served: Served) -> None:
    page = look(served, "/settings?tab=config").page
    engine = page.locator("section.card").filter(has_text="What the engine can")
    for name, words in (
        ("Durable", "yes messages survive the end of every process"),
        ("Shared", "yes several processes can open the same store"),
        ("Blocking", "yes a call may wait for a disk or a network"),
        ("Joins", "yes a put can join a transaction of the caller's own"),
    ):
        expect(engine.locator("dl > div").filter(has_text=name)).to_contain_text(words)
    table = page.get_by_role("table", name="What each role may do")
    expect(table.get_by_role("row")).to_have_count(len(Action))  # the titles, and every right but PUBLIC
    for action in set(Action) - {Action.PUBLIC}:
        row = table.get_by_role("row").filter(has=page.get_by_text(action, exact=True))
        may = ["yes" if action in ACTIONS[role] else "no" for role in Role]
        expect(row.get_by_role("cell")).to_contain_text([action, *may, ""])
    expect(table).to_contain_text("queue.pause, queue.resume")


def test_settings_tell_where_a_value_is_from_and_who_did_what(look: Look, served: Served, room: Room) -> None:
    room.queue("emails").put({})
    room.queue("emails").pause("a test of the audit")
    page = look(served, "/settings").page
    expect(page.get_by_text("leads")).to_be_visible()
    page.get_by_role("button", name="Health").click()
    health = page.get_by_role("table", name="Health")
    expect(health.get_by_role("row", name="keeper")).to_contain_text("one leads")
    expect(health.get_by_role("row", name="queue emails")).to_contain_text("resume it when it may go on")
    page.get_by_role("button", name="Configuration").click()
    expect(page.get_by_role("row", name="poll_timeout")).to_contain_text("default")
    redacted = page.locator("section.card").filter(has_text="What is redacted")
    expect(redacted).to_contain_text("password")
    expect(redacted).to_contain_text("none of your own")
    page.get_by_role("button", name="Audit").click()
    expect(page.get_by_role("table", name="Audit")).to_contain_text("a test of the audit")
    page.get_by_role("button", name="This browser").click()
    page.get_by_role("combobox", name="Theme").select_option("dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
