"""Work in progress in the browser: the countdown through overdue to reclaimed or dead, and more time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from postroom import Policy
from postroom.room import Room
from tests.dashboard.eyes import Eyes
from tests.http.servers import Served, serving

Look = Callable[..., Eyes]


def begin(room: Room, ack_timeout: str, max_attempts: int = 5) -> str:
    """A message that somebody works on, for so long at most; its id."""
    queue = room.queue("slow", Policy(ack_timeout=ack_timeout, backoff="10m", max_attempts=max_attempts))
    id = queue.put({"n": 1}, kind="build").id
    assert queue.claim()
    return id


def test_it_counts_down_by_the_server_and_is_reclaimed(look: Look, served: Served, room: Room) -> None:
    begin(room, "8s")
    page = look(served, "/processing").page
    left = page.get_by_role("table", name="Processing").locator("time.countdown")
    expect(left).to_have_text("3s")
    expect(left).to_have_attribute("data-phase", "short")
    expect(page.get_by_text("Reclaimed")).to_be_visible()
    expect(page.get_by_text("Nobody is working")).to_be_visible()


def test_without_a_keeper_it_stays_overdue_and_that_is_said(
    look: Look, served: Served, room: Room, url: str, tmp_path: Path
) -> None:
    served.terminate()
    begin(room, "2s")
    with serving(url, tmp_path, "--no-keeper") as alone:
        eyes = look(alone, "/processing")
        left = eyes.page.get_by_role("table", name="Processing").locator("time.countdown")
        expect(left).to_have_text("Overdue")
        expect(eyes.page.get_by_role("status").filter(has_text="1 overdue")).to_be_visible()
        expect(eyes.page.get_by_role("alert")).to_contain_text("No keeper is running")
        eyes.close()


def test_the_last_attempt_ends_as_a_dead_letter(look: Look, served: Served, room: Room) -> None:
    begin(room, "8s", max_attempts=1)
    page = look(served, "/processing").page
    expect(page.get_by_role("table", name="Processing").locator("time.countdown")).to_be_visible()
    expect(page.get_by_role("table", name="Processing").get_by_text("Dead", exact=True)).to_be_visible()


def test_more_time_and_release(look: Look, served: Served, room: Room) -> None:
    id = begin(room, "10m")
    page = look(served, "/processing").page
    page.get_by_role("button", name=f"Actions for {id}").click()
    page.get_by_role("button", name="More time…").click()
    dialog = page.get_by_role("dialog", name="More time")
    dialog.get_by_label("For how long").fill("3h")
    dialog.get_by_role("button", name="Give more time").click()
    expect(page.locator("time.countdown")).to_contain_text("2:59")
    page.get_by_role("button", name=f"Actions for {id}").click()
    page.get_by_role("button", name="Release now").click()
    expect(page.get_by_text("Nobody is working")).to_be_visible()
    assert room.queue("slow").get(id).state == "ready"


def test_the_filter_narrows_what_is_loaded(look: Look, served: Served, room: Room) -> None:
    begin(room, "10m")
    room.queue("fast").put({}, kind="resize")
    assert room.queue("fast").claim()
    page = look(served, "/processing").page
    rows = page.get_by_role("table", name="Processing").locator("tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_role("searchbox", name="Filter what is processing").fill("resize")
    expect(rows).to_have_count(1)
    page.get_by_role("searchbox", name="Filter what is processing").fill("overdue:yes")
    expect(page.get_by_text("Nothing is like that")).to_be_visible()
