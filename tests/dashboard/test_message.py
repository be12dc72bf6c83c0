"""A message: its story, what it carries, and what can be done with it in each state."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from postroom import Policy, audit
from postroom.queue import Queue
from postroom.room import Room
from tests.dashboard.eyes import Eyes
from tests.dashboard.scenes import Declined, furnish
from tests.http.servers import Served, serving

Look = Callable[..., Eyes]


def place(queue: str, id: str) -> str:
    return f"/queues/{queue}/messages/{id}"


def die(queue: Queue) -> str:
    """Fail twice, and so for good; the id."""
    id = queue.put({"account": 9007199254740993}, kind="pay_out").id
    for _ in range(2):
        delivery = queue.claim()
        assert delivery
        delivery.fail(Declined("account 4711 is closed"), after=0)
    return id


def test_a_replay_and_its_letter_lead_to_each_other(look: Look, served: Served, room: Room) -> None:
    queue = room.queue("pay")
    id = queue.put({"n": 1}, kind="charge").id
    delivery = queue.claim()
    assert delivery
    delivery.bury("declined")
    child = queue.replay(id)
    page = look(served, f"/queues/pay/messages/{child}").page
    expect(page.locator(".figures")).to_contain_text("Replayed from")
    expect(page.locator(".timeline li").first).to_contain_text("the replay of a dead letter")
    page.locator(".figures").get_by_role("link", name=id[-6:]).click()
    expect(page.locator(".timeline")).to_contain_text("Replayed")
    page.locator(".timeline").get_by_role("link", name=child[-6:]).click()
    expect(page.locator(".figures")).to_contain_text("Replayed from")


def test_the_story_of_a_dead_letter_and_its_replay(look: Look, served: Served, room: Room) -> None:
    queue = room.queue("payouts", Policy(max_attempts=2))
    id = die(queue)
    eyes = look(served, place("payouts", id))
    expect(eyes.page.get_by_role("heading", level=1)).to_contain_text("dead")
    steps = eyes.page.locator(".timeline li b")
    expect(steps).to_have_text(["Put", "Started", "Failed", "Started", "Failed", "Became a dead letter"])
    expect(eyes.page.locator(".timeline")).to_contain_text("attempt 2 of 2")
    expect(eyes.page.locator(".json")).to_contain_text("9007199254740993")  # every digit
    eyes.page.get_by_role("button", name="Failure").click()
    expect(eyes.page.get_by_role("heading", name="Declined")).to_be_visible()
    assert eyes.page.url.endswith("?tab=failure")

    eyes.page.get_by_role("button", name="Replay").click()
    expect(eyes.page.get_by_role("heading", level=1)).to_contain_text("ready")
    (replayed,) = queue.find("ready").entries
    expect(eyes.page).to_have_url(f"{served.address}/#{place('payouts', replayed.message.id)}")
    eyes.page.go_back()
    expect(steps).to_contain_text(["Replayed"])


def test_the_story_tells_how_often_work_was_given_more_time(look: Look, served: Served, room: Room) -> None:
    queue = room.queue("reports", Policy(max_attempts=3))
    id = queue.put({"month": "2026-10"}, kind="build_report").id
    first = queue.claim()
    assert first
    first.extend()
    time.sleep(0.002)  # it runs until a later millisecond: a span of none is not shown
    first.fail(Declined("the disk is full"), after=0)
    second = queue.claim()
    assert second
    for _ in range(3):
        second.extend("1h")
    timeline = look(served, place("reports", id)).page.locator(".timeline li")
    expect(timeline.filter(has_text="Failed")).to_contain_text("extended ×1, ran ")
    expect(timeline.filter(has_text="Working")).to_contain_text("extended ×3")


#: Presses r in the moment in which a button to replay comes into the page.
_AT_ONCE = """new MutationObserver((_, watching) => {
  if (![...document.querySelectorAll("main button")].some((each) => each.textContent === "Replay")) return;
  watching.disconnect();
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "r" }));
}).observe(document, { childList: true, subtree: true });"""


def test_a_key_works_as_soon_as_its_button_is_there(look: Look, served: Served, room: Room) -> None:
    id = room.queue("pay").put({"n": 1}).id
    delivery = room.queue("pay").claim()
    assert delivery
    delivery.bury("declined")
    eyes = look(served)
    eyes.context.add_init_script(_AT_ONCE)
    eyes.page.reload()
    eyes.go(place("pay", id))
    expect(eyes.page.get_by_role("heading", level=1)).to_contain_text("ready")


def test_a_scheduled_one_is_rescheduled_and_run_now(look: Look, served: Served, room: Room) -> None:
    queue = room.queue("emails")
    id = queue.put(1, delay=3_600).id
    eyes = look(served, place("emails", id))
    expect(eyes.page.locator(".figures")).to_contain_text("Due in")
    eyes.page.get_by_role("button", name="Reschedule…").click()
    eyes.page.get_by_label("Due in").fill("2h")
    eyes.page.get_by_role("dialog").get_by_role("button", name="Reschedule").click()
    expect(eyes.page.get_by_text("Due in 2h.")).to_be_visible()
    eyes.page.get_by_role("button", name="Run now").click()
    expect(eyes.page.get_by_role("heading", level=1)).to_contain_text("ready")
    assert queue.stats().ready == 1


def test_one_that_is_worked_on_gets_a_minute_more_and_is_released(
    look: Look, served: Served, room: Room
) -> None:
    queue = room.queue("emails", Policy(ack_timeout="10m", lease="10m"))
    id = queue.put(1).id
    delivery = queue.claim()
    assert delivery
    eyes = look(served, place("emails", id))
    expect(eyes.page.get_by_role("heading", level=1)).to_contain_text("processing")
    before = queue.get(id).deadline
    eyes.page.get_by_role("button", name="1 minute").click()
    expect(eyes.page.get_by_text("It has a minute more, from now.")).to_be_visible()
    assert queue.get(id).deadline != before
    eyes.page.get_by_role("button", name="Release…").click()
    eyes.page.get_by_role("dialog").get_by_role("button", name="Release it").click()
    expect(eyes.page.get_by_role("heading", level=1)).to_contain_text("ready")


def test_one_that_is_worked_on_is_cancelled(look: Look, served: Served, room: Room) -> None:
    queue = room.queue("emails", Policy(ack_timeout="10m"))
    id = queue.put(1).id
    assert queue.claim()
    eyes = look(served, place("emails", id))
    eyes.forgive("status of 404")
    eyes.page.get_by_role("button", name="Cancel…").click()
    dialog = eyes.page.get_by_role("dialog")
    expect(dialog).to_contain_text("Work that has begun is not interrupted")
    dialog.get_by_role("button", name="Cancel it").click()
    expect(eyes.page.get_by_text("This message is not here any more")).to_be_visible()
    assert queue.stats().processing == 0


def test_what_waits_is_cancelled_and_what_is_gone_is_explained(
    look: Look, served: Served, room: Room
) -> None:
    queue = room.queue("emails")
    id = queue.put(1).id
    eyes = look(served, place("emails", id))
    eyes.forgive("status of 404")
    eyes.page.get_by_role("button", name="Cancel…").click()
    eyes.page.get_by_role("dialog").get_by_role("button", name="Cancel it").click()
    expect(eyes.page.get_by_text("This message is not here any more")).to_be_visible()
    assert queue.stats().depth == 0


def test_an_id_alone_is_found(look: Look, served: Served, room: Room) -> None:
    furnish(room, ready=10)
    id = room.queue("emails").put(1, kind="needle").id
    eyes = look(served)
    eyes.page.keyboard.press("Control+k")
    eyes.page.get_by_role("combobox").fill(id)
    eyes.page.get_by_role("option", name="Find message").click()
    expect(eyes.page.get_by_role("heading", level=1)).to_contain_text("needle")
    eyes.go("/find?id=0123456789abcdef0123456789abcdef")
    expect(eyes.page.get_by_text("No queue has this message")).to_be_visible()


def test_messages_are_found_by_their_kind(look: Look, served: Served, room: Room) -> None:
    furnish(room, ready=10)
    id = room.queue("emails").put(1, kind="shop.find_needle", delay="1h").id
    page = look(served).page
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("needle")
    page.get_by_role("option", name="Find messages of kind needle").click()
    table = page.get_by_role("table", name="Messages of this kind")
    expect(table.get_by_role("row", name="shop.find_needle")).to_contain_text("scheduled")
    expect(page.get_by_text("1 found among")).to_be_visible()
    page.get_by_role("combobox", name="State").select_option("ready")
    expect(page.get_by_text("No message is of such a kind")).to_be_visible()
    assert "kind=needle&state=ready" in page.url
    page.get_by_role("searchbox", name="Kind or id").fill(id)
    page.get_by_role("button", name="Find", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("shop.find_needle")


def test_a_search_that_stopped_goes_on_when_it_is_told_to(look: Look, served: Served, room: Room) -> None:
    queue = room.queue("emails")
    queue.put_many([queue.message(n, kind="send") for n in range(450)])
    eyes = look(served, "/find?kind=send")
    expect(eyes.page.get_by_text("200 found among 200 messages so far.")).to_be_visible()
    eyes.page.get_by_role("button", name="Search on").click()
    expect(eyes.page.get_by_text("400 found among 400")).to_be_visible()
    eyes.page.get_by_role("button", name="Search on").click()
    expect(eyes.page.get_by_text("450 found among 450 messages, all there are.")).to_be_visible()


PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_trace_is_a_link_to_where_it_is_looked_at(look: Look, url: str, tmp_path: Path, room: Room) -> None:
    id = room.queue("emails").put(1, kind="send", headers={"traceparent": PARENT}).id
    told = {"POSTROOM_HTTP_TRACE_LINK": "https://traces.example/{trace_id}"}
    with serving(url, tmp_path, **told) as served:
        eyes = look(served, place("emails", id))
        link = eyes.page.get_by_role("link", name="Open the trace")
        expect(link).to_have_attribute("href", "https://traces.example/4bf92f3577b34da6a3ce929d0e0e4736")
        expect(link).to_have_attribute("rel", "noopener noreferrer")
        eyes.close()


def test_an_attempt_has_a_link_of_its_own_and_a_traceback_three_views(
    look: Look, served: Served, room: Room
) -> None:
    queue = room.queue("payouts", Policy(max_attempts=2))
    queue.put(1, kind="pay_out")
    for _ in range(2):
        delivery = queue.claim()
        assert delivery
        try:
            json.loads("{")
        except ValueError as error:
            delivery.fail(error, after=0)
    (dead,) = queue.find("dead").entries
    page = look(served, f"{place('payouts', dead.message.id)}?tab=failure&attempt=1").page
    chosen = page.get_by_role("table", name="Attempts").locator("tr.chosen")
    expect(chosen.get_by_role("cell").first).to_have_text("1")
    trace = page.locator("pre.raw")
    expect(trace).to_contain_text("test_message.py")
    expect(trace).not_to_contain_text("json/decoder.py")
    page.get_by_role("button", name="All frames").click()
    expect(trace.locator(".theirs", has_text="json/decoder.py").first).to_be_visible()
    page.get_by_role("button", name="Raw").click()
    expect(trace).to_contain_text("json/decoder.py")
    page.get_by_role("table", name="Attempts").get_by_role("link", name="2", exact=True).click()
    expect(chosen.get_by_role("cell").first).to_have_text("2")
    assert page.url.endswith("?tab=failure&attempt=2")


def test_others_of_the_same_kind_and_the_commands_for_this_one(
    look: Look, served: Served, room: Room
) -> None:
    queue = room.queue("emails")
    ids = [queue.put(n, kind="send").id for n in range(3)]
    queue.put(1, kind="resend")
    page = look(served, f"{place('emails', ids[0])}?tab=kind").page
    rows = page.get_by_role("table", name="Messages of the same kind").locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(page.get_by_role("heading", name="3 of send")).to_be_visible()
    page.get_by_role("button", name="Commands").click()
    expect(page.get_by_text(f"postroom message show {ids[0]} --queue emails")).to_be_visible()


def test_what_the_store_holds_is_shown_to_who_may_see_it_and_is_audited(
    look: Look, served: Served, room: Room
) -> None:
    id = room.queue("emails").put({"password": "hunter2"}, kind="send").id
    page = look(served, f"{place('emails', id)}?tab=stored").page
    assert audit.read(room.engine).acts == [], "nothing is looked at before it is asked for"
    page.get_by_role("button", name="Show it").click()
    table = page.get_by_role("table", name="What is stored")
    expect(table.get_by_role("row", name="postroom_message.kind")).to_contain_text("send")
    expect(table.get_by_role("row", name="postroom_message.body")).to_contain_text("hunter2")
    assert [(act.event, act.info["ids"]) for act in audit.read(room.engine).acts] == [("raw", [id])]
