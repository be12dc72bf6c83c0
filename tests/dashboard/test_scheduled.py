"""What waits for its time, in the browser: run now, reschedule with a way back, cancel, spread, schedules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from postroom.room import Room
from tests.dashboard.eyes import Eyes
from tests.http.servers import Served, serving

Look = Callable[..., Eyes]


def test_run_now_and_take_it_back(look: Look, served: Served, room: Room) -> None:
    queue = room.queue("reports")
    id = queue.put({}, kind="build", delay="2h").id
    due = queue.get(id).due
    page = look(served, "/scheduled").page
    expect(page.locator("time.countdown")).to_contain_text("1:59:")
    page.get_by_role("button", name=f"Actions for {id}").click()
    page.get_by_role("button", name="Run now").click()
    undo = page.get_by_role("button", name="Undo")
    expect(undo).to_be_visible()
    assert queue.get(id).state == "ready"
    expect(page.get_by_role("table", name="Scheduled messages")).to_contain_text("Left")
    undo.click()  # before its ten seconds are over: the row itself goes later
    expect(page.get_by_text("Undone.")).to_be_visible()
    assert queue.get(id).due == due
    expect(page.locator("time.countdown")).to_contain_text("1:59:")


def test_another_time_and_out(look: Look, served: Served, room: Room) -> None:
    id = room.queue("reports").put({}, delay="2h").id
    page = look(served, "/scheduled").page
    page.get_by_role("button", name=f"Actions for {id}").click()
    page.get_by_role("button", name="Reschedule…").click()
    dialog = page.get_by_role("dialog", name="Reschedule")
    dialog.get_by_label("From now").fill("3d")
    dialog.get_by_role("button", name="Reschedule").click()
    expect(page.locator("time.countdown")).to_contain_text("2d 23h")
    page.get_by_role("button", name=f"Actions for {id}").click()
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("dialog").get_by_role("button", name="Take it out").click()
    expect(page.get_by_text("Nothing waits for its time")).to_be_visible()


def test_a_herd_is_spread_out(look: Look, served: Served, room: Room) -> None:
    queue = room.queue("reports")
    for n in range(4):
        queue.put({"n": n}, delay="2h")
    page = look(served, "/scheduled").page
    expect(page.get_by_role("img", name="4 messages")).to_be_visible()
    page.get_by_role("checkbox", name="Select all loaded rows").check()
    page.get_by_role("button", name="Spread…").click()
    dialog = page.get_by_role("dialog", name="Spread out")
    dialog.get_by_label("Over so many minutes").fill("400")
    dialog.get_by_role("button", name="Spread out").click()
    expect(page.get_by_text("Spread out: 4 messages.")).to_be_visible()
    dues = sorted(entry.due for entry in queue.find("scheduled").entries)
    assert [round((due - dues[0]) / 6_000_000) for due in dues[1:]] in ([1, 2], [1, 2, 3])


def test_some_are_made_ready_and_some_taken_out(look: Look, served: Served, room: Room) -> None:
    queue = room.queue("reports")
    ids = [queue.put({"n": n}, delay="2h").id for n in range(4)]
    page = look(served, "/scheduled").page
    for id in ids[:2]:
        page.get_by_role("checkbox", name=f"Select reports {id}").check()
    page.get_by_role("button", name="Run 2 now").click()
    expect(page.get_by_text("Made ready: 2 messages.")).to_be_visible()
    page.get_by_role("checkbox", name=f"Select reports {ids[2]}").check()
    page.get_by_role("button", name="Cancel 1…").click()
    page.get_by_role("dialog", name="Cancel").get_by_role("button", name="Take them out").click()
    expect(page.get_by_text("Cancelled: 1 message.")).to_be_visible()
    assert [entry.id for entry in queue.find("ready").entries] == ids[:2]
    assert [entry.id for entry in queue.find("scheduled").entries] == ids[3:]


def test_a_schedule_is_paused_and_goes_on(look: Look, url: str, room: Room, tmp_path: Path) -> None:
    (tmp_path / "postroom.toml").write_text(
        '[schedule.nightly]\ncron = "0 3 * * *"\nqueue = "reports"\nkind = "build"\n'
    )
    with serving(url, tmp_path) as served:
        eyes = look(served, "/scheduled?tab=schedules")
        row = eyes.page.get_by_role("row", name="nightly")
        expect(row).to_contain_text("0 3 * * *")
        eyes.page.get_by_role("button", name="Actions for nightly").click()
        eyes.page.get_by_role("button", name="Pause", exact=True).click()
        expect(row).to_contain_text("paused")
        eyes.page.get_by_role("button", name="Undo").click()
        expect(row.locator("time.countdown")).to_be_visible()
        eyes.page.get_by_role("button", name="Actions for nightly").click()
        eyes.page.get_by_role("button", name="Run now").click()
        expect(eyes.page.get_by_text("One message of nightly is put.")).to_be_visible()
        eyes.close()
    assert room.queue("reports").stats().ready == 1


def test_drawing_over_the_histogram_shows_only_what_is_due_then(
    look: Look, served: Served, room: Room
) -> None:
    for minutes in (5, 6, 50, 100):
        room.queue("reports").put({"n": minutes}, delay=minutes * 60)
    eyes = look(served, "/scheduled")
    rows = eyes.page.get_by_role("table", name="Scheduled messages").locator("tbody tr.opens")
    expect(rows).to_have_count(4)
    expect(eyes.page.get_by_role("img", name="4 messages due")).to_be_visible()
    box = eyes.page.locator(".histogram-bars").bounding_box()
    assert box
    middle = box["y"] + box["height"] / 2
    eyes.page.mouse.move(box["x"] + box["width"] * 0.4, middle)
    eyes.page.mouse.down()
    eyes.page.mouse.move(box["x"] + box["width"] * 0.7, middle, steps=4)
    eyes.page.mouse.up()
    expect(rows).to_have_count(1)
    assert "due=" in eyes.page.url, "the address holds the range"
    eyes.page.reload()
    expect(rows).to_have_count(1)
    eyes.page.get_by_role("button", name="Show all").click()
    expect(rows).to_have_count(4)
    eyes.page.get_by_role("button", name="Next hour").click()
    expect(eyes.page.get_by_role("img", name="3 messages")).to_be_visible()
