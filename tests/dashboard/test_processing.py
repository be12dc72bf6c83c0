"""Work in progress in the browser: the countdown through overdue to reclaimed or dead, and more time."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from postroom import Policy
from postroom.room import Room
from tests.dashboard.eyes import Eyes
from tests.http.servers import Served, serving

Look = Callable[..., Eyes]


def begin(room: Room, ack_timeout: str, max_attempts: int = 5, queue: str = "slow") -> str:
    """A message that somebody works on, for so long at most; its id."""
    where = room.queue(queue, Policy(ack_timeout=ack_timeout, backoff="10m", max_attempts=max_attempts))
    id = where.put({"n": 1}, kind="build").id
    assert where.claim()
    return id


def test_it_counts_down_by_the_server_and_is_reclaimed(look: Look, served: Served, room: Room) -> None:
    page = look(served, "/processing").page
    expect(page.get_by_text("Nobody is working")).to_be_visible()
    # Begun when the page is there, and long enough for it to be seen on a busy machine.
    begin(room, "20s")
    begin(room, "20s", max_attempts=1, queue="strict")
    table = page.get_by_role("table", name="Processing")
    slow, strict = table.get_by_role("row", name="slow"), table.get_by_role("row", name="strict")
    expect(slow.locator("time.countdown")).to_have_text(re.compile(r"^\s*\d+s$"))
    expect(slow.locator("time.countdown")).to_have_attribute("data-phase", "short")
    expect(slow.get_by_text("Reclaimed")).to_be_visible()
    expect(strict.get_by_text("Dead", exact=True)).to_be_visible()
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


def test_work_is_given_up_and_why_is_kept(look: Look, served: Served, room: Room) -> None:
    id = begin(room, "10m")
    page = look(served, "/processing").page
    page.get_by_role("button", name=f"Actions for {id}").click()
    page.get_by_role("button", name="Give it up…").click()
    dialog = page.get_by_role("dialog", name="Give it up")
    dialog.get_by_label("Reason").fill("it never ends")
    dialog.get_by_role("button", name="Give it up").click()
    expect(page.get_by_text("Nobody is working")).to_be_visible()
    found = room.queue("slow").get(id)
    assert (found.state, found.last_error) == ("dead", "Bury: it never ends")


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
