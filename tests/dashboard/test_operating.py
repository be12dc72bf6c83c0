"""Workers, breakers, events, configuration and audit in the browser."""

from __future__ import annotations

import threading
from collections.abc import Callable

from playwright.sync_api import expect

from postroom import Worker
from postroom.breaker import Breaker
from postroom.room import Room
from tests.dashboard.eyes import Eyes
from tests.http.servers import Served

Look = Callable[..., Eyes]


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


def test_settings_tell_where_a_value_is_from_and_who_did_what(look: Look, served: Served, room: Room) -> None:
    room.queue("emails").put({})
    room.queue("emails").pause("a test of the audit")
    page = look(served, "/settings").page
    expect(page.get_by_text("leads")).to_be_visible()
    page.get_by_role("button", name="Configuration").click()
    expect(page.get_by_role("row", name="poll_timeout")).to_contain_text("default")
    page.get_by_role("button", name="Audit").click()
    expect(page.get_by_role("table", name="Audit")).to_contain_text("a test of the audit")
    page.get_by_role("button", name="This browser").click()
    page.get_by_role("combobox", name="Theme").select_option("dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
