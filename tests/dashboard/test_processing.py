"""Work in progress in the browser: the countdown through overdue to reclaimed or dead, and more time."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from postroom import Bury, Delivery, LeaseLost, Policy, Worker, audit, staff
from postroom.engine import ClaimRequest
from postroom.keeper import leader
from postroom.room import Room
from postroom.worker.runs import WORTH
from tests.dashboard.eyes import PATIENCE, Eyes, until
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


@pytest.mark.parametrize("hours", [-30, 30], ids=["slow", "fast"])
def test_a_wrong_clock_of_the_browser_changes_nothing(
    look: Look, served: Served, room: Room, hours: int
) -> None:
    begin(room, "10m")
    eyes = look(served)
    eyes.page.clock.install(time=time.time() + hours * 3_600)
    eyes.go("/processing")
    eyes.page.reload()
    left = eyes.page.get_by_role("table", name="Processing").locator("time.countdown")
    expect(left).to_have_text(re.compile(r"^\s*(10:00|9:\d\d|8:\d\d)$"))
    expect(left).to_have_attribute("data-phase", "fine")


#: The module that counts down, as the page has it.
_CLOCK = 'import(new URL("lib/clock.js", document.querySelector("script[type=module]").src))'


def test_seconds_round_up(eyes: Eyes) -> None:
    lefts = [1, 1_000, 1_001, 59_000, 59_001, 119_500, 3_599_001, 3_600_001, 172_799_001]
    said = eyes.page.evaluate(f"async (lefts) => lefts.map((await {_CLOCK}).countdownText)", lefts)
    assert said == ["1s", "1s", "2s", "59s", "1:00", "2:00", "1:00:00", "1:00:01", "2d 0h"]


def test_nothing_ticks_where_nothing_counts_down(look: Look, served: Served, room: Room) -> None:
    id = room.queue("slow").put({}, delay="1h").id
    page = look(served, "/scheduled").page
    expect(page.locator("time.countdown")).to_be_visible()
    assert page.evaluate(f"async () => (await {_CLOCK}).ticking()") > 0
    room.queue("slow").cancel(id)
    expect(page.get_by_text("Nothing waits for its time")).to_be_visible()
    until(page, f"async () => (await {_CLOCK}).ticking() === 0")


def test_where_nobody_works_nothing_ticks_for_the_keeper_either(
    look: Look, served: Served, room: Room
) -> None:
    queue = room.queue("slow", Policy(ack_timeout="10m"))
    queue.put({})
    held = queue.claim()
    assert held
    page = look(served, "/processing").page
    strip = page.locator("p.strip")
    expect(strip).to_contain_text("next sweep")
    expect(page.locator("time.countdown")).to_be_visible()
    assert page.evaluate(f"async () => (await {_CLOCK}).ticking()") > 0
    held.ack()
    expect(page.get_by_text("Nobody is working")).to_be_visible()
    expect(strip).to_contain_text("0 processing· the keeper sweeps every 5 s· keeper")
    until(page, f"async () => (await {_CLOCK}).ticking() === 0")


def test_what_is_not_begun_or_not_known_is_not_counted_down(look: Look, served: Served, room: Room) -> None:
    begin(room, "10m")
    room.queue("slow").put({"n": 2}, kind="held")
    room.engine.claim("slow", ClaimRequest(start=0))
    eyes = look(served)

    def without_deadlines(route: Route) -> None:
        """What a server tells whose policy does not say how long work may take."""
        answer = route.fetch()
        told = answer.json()
        for message in told["messages"]:
            message["deadline"] = None
        route.fulfill(response=answer, json=told)

    eyes.page.route(re.compile("/queues/slow/messages"), without_deadlines)
    eyes.go("/processing")
    row = eyes.page.get_by_role("table", name="Processing").get_by_role("row")
    expect(row.filter(has_text="held").get_by_title("Claimed, not begun")).to_have_text("—")
    expect(row.filter(has_text="build").get_by_text("…", exact=True)).to_be_visible()
    eyes.page.unroute_all(behavior="wait")


def test_without_a_keeper_it_stays_overdue_and_that_is_said(
    look: Look, served: Served, room: Room, url: str, tmp_path: Path
) -> None:
    served.terminate()
    id = begin(room, "2s")
    with serving(url, tmp_path, "--no-keeper") as alone:
        eyes = look(alone, "/processing")
        left = eyes.page.get_by_role("table", name="Processing").locator("time.countdown")
        expect(left).to_have_text("Overdue")
        expect(left).to_have_attribute("data-phase", "over")
        expect(eyes.page.get_by_role("status").filter(has_text="1 overdue")).to_be_visible()
        expect(eyes.page.get_by_role("alert")).to_contain_text("No keeper is running")
        room.queue("slow").cancel(id, processing=True)
        expect(eyes.page.get_by_text("Nobody is working")).to_be_visible()
        until(eyes.page, f"async () => (await {_CLOCK}).ticking() === 0")
        eyes.close()


def test_the_next_sweep_is_told_and_who_sweeps(look: Look, served: Served, room: Room) -> None:
    begin(room, "10m")
    strip = look(served, "/processing").page.locator("p.strip")
    expect(strip).to_contain_text("1 processing")
    expect(strip.locator("time")).to_have_text(re.compile(r"^(now|in [1-5] s)$"))
    found = leader(room.engine)
    assert found
    expect(strip).to_contain_text(f"keeper {found.name}")


def test_lanes_tell_who_worked_on_what_over_five_minutes(
    look: Look, served: Served, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staff, "BEAT", 100)
    goes_on = threading.Event()

    def work(delivery: Delivery) -> None:
        if delivery.kind == "resize":
            goes_on.wait(PATIENCE / 1_000)
        else:
            time.sleep(WORTH + 0.01)
        if delivery.kind == "explode":
            raise Bury("boom")

    try:
        with Worker(room, {"images": work}, name="desk-7", concurrency=3):
            for kind in ("render", "explode", "resize"):
                room.queue("images").put({}, kind=kind)
            page = look(served, "/processing?view=lanes").page
            bars = page.get_by_role("list", name="Runs of desk-7")
            expect(bars.get_by_role("img", name="render, done after")).to_be_visible()
            expect(bars.get_by_role("link", name="resize, running for")).to_be_visible()
            expect(bars.get_by_role("link", name="explode, failed after")).to_be_visible()
            goes_on.set()
            expect(bars.get_by_role("img", name="resize, done after")).to_be_visible()
            expect(bars.get_by_role("listitem")).to_have_count(3)
            bars.get_by_role("link", name="explode, failed after").click()
            expect(page.locator("h1")).to_contain_text("explode")
    finally:
        goes_on.set()


def test_more_time_and_release(look: Look, served: Served, room: Room) -> None:
    id = begin(room, "10m")
    page = look(served, "/processing").page
    page.get_by_role("button", name=f"Actions for {id}").click()
    page.get_by_role("button", name="One more minute").click()
    expect(page.locator(".toasts")).to_contain_text("It has another minute.")
    deadline = room.queue("slow").get(id).deadline
    assert deadline
    assert 0 < deadline - room.engine.now() <= 60_000  # of ten minutes
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


def shown_before_it_changed_hands(look: Look, served: Served, room: Room) -> tuple[Page, str]:
    """The page, with the menu of a message open that has another worker by now; and its id."""
    id = begin(room, "10m")
    eyes = look(served, "/processing")
    eyes.forgive("status of 409")
    actions = eyes.page.get_by_role("button", name=f"Actions for {id}")
    expect(actions).to_be_visible()
    eyes.page.get_by_role("button", name="Live", exact=True).click()  # what is shown stands still
    expect(eyes.page.get_by_role("button", name="Paused")).to_be_visible()
    queue = room.queue("slow")
    queue.release(id)
    assert queue.claim()
    actions.click()
    return eyes.page, id


def test_whoever_claimed_it_later_is_left_alone(look: Look, served: Served, room: Room) -> None:
    page, id = shown_before_it_changed_hands(look, served, room)
    page.get_by_role("button", name="Release now").click()
    expect(page.locator(".toasts")).to_contain_text("has changed hands: now")
    assert room.queue("slow").get(id).state == "processing"


def test_work_is_cancelled_and_its_worker_is_told(look: Look, served: Served, room: Room) -> None:
    queue = room.queue("slow", Policy(ack_timeout="10m"))
    queue.put({"n": 1}, unique_key="one")
    delivery = queue.claim()
    assert delivery
    page = look(served, "/processing").page
    page.get_by_role("button", name=f"Actions for {delivery.id}").click()
    # With one row it stands out of the table, whole.
    last = page.get_by_role("button", name="Give it up…")
    assert last.evaluate(
        "e => { const at = e.getBoundingClientRect(); "
        "return e.contains(document.elementFromPoint(at.x + 5, at.y + at.height / 2)) }"
    )
    page.get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog", name="Cancel it?")
    expect(dialog).to_contain_text("Work that has begun is not interrupted")
    dialog.get_by_label("Reason").fill("sent twice")
    dialog.get_by_role("button", name="Cancel the message").click()
    expect(page.get_by_role("table", name="Processing").get_by_text("Cancelled")).to_be_visible()
    expect(page.get_by_text("Nobody is working")).to_be_visible()
    with pytest.raises(LeaseLost):
        delivery.ack()
    assert queue.stats().counters["cancelled"] == 1
    (act,) = (act for act in audit.read(room.engine).acts if act.event == "cancel")
    assert act.info == {"id": delivery.id, "reason": "sent twice"}


def test_a_cancel_leaves_whoever_claimed_it_later_alone(look: Look, served: Served, room: Room) -> None:
    page, id = shown_before_it_changed_hands(look, served, room)
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the message").click()
    expect(page.locator(".toasts")).to_contain_text("has changed hands: now")
    assert room.queue("slow").get(id).state == "processing"


def test_it_is_told_how_long_and_which_attempt_of_how_many(look: Look, served: Served, room: Room) -> None:
    begin(room, "10m", max_attempts=7)
    row = look(served, "/processing").page.get_by_role("table", name="Processing").locator("tbody tr")
    expect(row).to_contain_text("1 / 7")
    expect(row.get_by_role("cell", name=re.compile(r"^\d+ s$"))).to_be_visible()


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
