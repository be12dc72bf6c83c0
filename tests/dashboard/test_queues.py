"""Queues and the page of one: how it stands, what it promises, what an operator does to it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
from playwright.sync_api import Request, expect

from postroom import Policy, Worker, charts
from postroom.http import tokens
from postroom.http.roles import Role
from postroom.room import Room
from tests.dashboard.eyes import Eyes
from tests.dashboard.scenes import furnish
from tests.http.servers import Served, serving

Look = Callable[..., Eyes]


def test_a_queue_is_stalled_until_somebody_takes_from_it(look: Look, served: Served, room: Room) -> None:
    queue = room.queue("slow")
    queue.put_many(list(range(100)))
    row = look(served, "/queues").page.get_by_role("row", name="slow")
    expect(row).to_contain_text("Stalled")
    taken = queue.claim()
    assert taken
    taken.ack()
    expect(row).not_to_contain_text("Stalled")
    assert queue.stats().processing == 0


def test_a_queue_that_is_throttled_or_at_its_limit_says_so(look: Look, served: Served, room: Room) -> None:
    slow = room.queue("slow", Policy(rate="1/h"))
    slow.put_many([1, 2, 3])
    slow.put({}, delay="2h")
    assert slow.claim()
    narrow = room.queue("narrow", Policy(max_in_flight=1))
    narrow.put_many([1, 2])
    held = narrow.claim()
    assert held
    eyes = look(served, "/queues/slow")
    page = eyes.page
    expect(page.locator("h1")).to_contain_text("Throttled")
    expect(page.locator(".page-title")).to_contain_text(
        re.compile(r"its rate of 1/h lets the next one through in \d+ min.*; 2 messages wait")
    )
    eyes.go("/scheduled")
    expect(page.get_by_role("table", name="Scheduled messages")).to_contain_text("throttled")
    eyes.go("/queues/narrow")
    expect(page.locator("h1")).to_contain_text("At its limit")
    held.ack()
    expect(page.locator("h1")).not_to_contain_text("At its limit")


def test_a_name_filters_and_stands_in_the_address(look: Look, served: Served, room: Room) -> None:
    furnish(room, ready=10)
    eyes = look(served, "/queues")
    expect(eyes.page.get_by_role("row")).to_have_count(6)
    eyes.page.keyboard.press("/")
    eyes.page.keyboard.type("pay")
    expect(eyes.page.get_by_role("row")).to_have_count(2)
    expect(eyes.page).to_have_url(f"{served.address}/#/queues?name=pay")
    eyes.page.reload()
    expect(eyes.page.get_by_role("link", name="payouts")).to_be_visible()
    expect(eyes.page.get_by_role("row")).to_have_count(2)


def test_the_address_holds_the_order_and_the_columns(look: Look, served: Served, room: Room) -> None:
    for name, ready in {"alpha": 2, "beta": 3, "gamma": 1}.items():
        room.queue(name).put_many([room.queue(name).message(n) for n in range(ready)])
    room.queue("idle", Policy())
    with Worker(room, {"idle": print}, keeper=False):
        eyes = look(served, "/queues?sort=-ready")
        names = eyes.page.locator("tbody .queue-link")
        expect(names).to_have_text(["beta", "alpha", "gamma", "idle"])
        eyes.page.get_by_role("button", name="Ready").click()  # once more: the least first
        expect(names).to_have_text(["idle", "gamma", "alpha", "beta"])
        expect(eyes.page.get_by_role("columnheader", name="Ready")).to_have_attribute(
            "aria-sort", "ascending"
        )
        expect(eyes.page).to_have_url(f"{served.address}/#/queues?sort=ready")
        workers = eyes.page.get_by_role("columnheader", name="Workers")
        place = workers.evaluate("cell => cell.cellIndex")
        expect(eyes.page.get_by_role("row", name="idle").locator("td").nth(place)).to_have_text("1")
        expect(eyes.page.get_by_role("row", name="beta").locator("td").nth(place)).to_have_text("0")
        eyes.page.get_by_text("Columns", exact=True).click()
        eyes.page.get_by_role("checkbox", name="Workers").uncheck()
        expect(workers).to_have_count(0)
        eyes.page.reload()
        expect(names).to_have_text(["idle", "gamma", "alpha", "beta"])
        expect(workers).to_have_count(0)


def test_the_table_tells_how_urgent_what_is_ready_is_and_what_retries(
    look: Look, served: Served, room: Room
) -> None:
    mixed = room.queue("mixed", Policy(labels={"vip": 200, "normal": 5}))
    mixed.put_many([mixed.message(n, priority="normal") for n in range(20)])
    for priority in (200, 200, 77, 255):
        mixed.put({}, priority=priority)
    taken = mixed.claim()
    assert taken
    taken.fail("no answer", after="2h")
    mixed.put({}, delay="3h")
    room.queue("idle", Policy())
    page = look(served, "/queues").page
    row = page.get_by_role("row", name="mixed")
    expect(row.get_by_role("img", name="2 vip, 1 at level 77, 20 normal")).to_be_visible()
    place = page.get_by_role("columnheader", name="Retrying").evaluate("cell => cell.cellIndex")
    expect(row.locator("td").nth(place)).to_have_text("1")
    expect(page.get_by_role("row", name="idle").locator("td").nth(place)).to_have_text("0")
    expect(page.get_by_role("row", name="idle").locator(".levelled .bar")).to_have_count(0)
    page.set_viewport_size({"width": 390, "height": 800})
    expect(row.get_by_role("img", name="2 vip")).to_be_hidden()
    expect(page.get_by_role("columnheader", name="Retrying")).to_be_hidden()


def test_what_is_not_counted_to_its_end_is_told_as_the_least(look: Look, served: Served, room: Room) -> None:
    queue = room.queue("aged", Policy(aging="1h"))
    queue.put_many([queue.message(n, priority="high") for n in range(10)])
    for _ in range(2):
        queue.put_many([queue.message(n, priority=3) for n in range(600)])
        queue.put_many([queue.message(n, delay="5h") for n in range(600)])
    taken = queue.claim()
    assert taken
    taken.fail("no answer", after="2h")
    page = look(served, "/queues").page
    row = page.get_by_role("row", name="aged")
    expect(row.get_by_role("img", name="at least 9 high, 991 at level 3")).to_be_visible()
    place = page.get_by_role("columnheader", name="Retrying").evaluate("cell => cell.cellIndex")
    expect(row.locator("td").nth(place)).to_have_text("1+")


def test_of_many_queues_only_those_in_sight_are_looked_into(look: Look, served: Served, room: Room) -> None:
    for number in range(200):
        room.queue(f"q{number:03}").put({})
    room.queue("q001").purge()
    eyes = look(served, "/")
    asked: list[list[str]] = []

    def note(request: Request) -> None:
        if "/backlogs" in request.url:
            asked.append(parse_qs(urlsplit(request.url).query)["queue"])

    eyes.page.on("request", note)
    eyes.go("/queues")
    expect(eyes.page.get_by_role("row", name="q000").get_by_role("img", name="1 normal")).to_be_visible()
    eyes.page.evaluate("document.querySelector('.table-frame').scrollTop = 100 * 40")
    expect(eyes.page.get_by_role("row", name="q110").get_by_role("img", name="1 normal")).to_be_visible()
    names = {name for each in asked for name in each}
    assert {"q000", "q110"} <= names
    assert not {"q001", "q050", "q199"} & names
    assert max(map(len, asked)) < 40


def test_a_key_pauses_the_queue_that_is_shown(look: Look, served: Served, room: Room) -> None:
    room.queue("emails").put({})
    page = look(served, "/queues/emails").page
    expect(page.get_by_role("button", name="Pause…")).to_be_visible()
    page.keyboard.press("p")
    page.get_by_role("dialog", name="Pause emails?").get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Pause…")).to_be_visible()
    assert not room.engine.stats("emails").paused


def test_pause_with_a_reason_undo_and_purge_by_name(look: Look, served: Served, room: Room) -> None:
    queue = room.queue("emails")
    queue.put_many([queue.message(n) for n in range(3)])
    eyes = look(served, "/queues/emails")
    eyes.page.get_by_role("button", name="Pause…").click()
    eyes.page.get_by_label("Reason").fill("the provider is away")
    eyes.page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(eyes.page.get_by_text("the provider is away; 3 messages wait")).to_be_visible()
    assert room.queues()[0].pause_reason == "the provider is away"
    eyes.page.get_by_role("button", name="Undo").click()
    expect(eyes.page.get_by_role("button", name="Pause…")).to_be_visible()
    assert not room.queues()[0].paused

    eyes.page.get_by_role("button", name="More actions").click()
    eyes.page.get_by_role("button", name="Purge…").click()
    dialog = eyes.page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 messages that wait in emails")
    expect(dialog.get_by_role("button", name="Purge 3 messages")).to_be_disabled()
    dialog.get_by_role("textbox").fill("emails")
    dialog.get_by_role("button", name="Purge 3 messages").click()
    expect(eyes.page.get_by_text("Purged 3 messages from emails.")).to_be_visible()
    assert room.queue("emails").stats().depth == 0


def test_the_policy_says_where_each_setting_comes_from(look: Look, served: Served, room: Room) -> None:
    furnish(room, ready=10)
    eyes = look(served, "/queues/payouts?show=policy")
    expect(eyes.page.get_by_text("1 min 30 s, 3 min, 6 min, 12 min, 24 min")).to_be_visible()
    attempts = eyes.page.locator(".settings > div", has_text="Attempts")
    expect(attempts).to_have_text(re.compile(r"Attempts\s*6\s*queue"))
    expect(eyes.page.locator(".settings > div", has_text="A silent worker")).to_contain_text("default")


def test_a_message_is_put_by_hand(look: Look, served: Served, room: Room) -> None:
    room.queue("emails", Policy())
    eyes = look(served, "/queues/emails")
    expect(eyes.page.get_by_text("Nothing is ready")).to_be_visible()
    eyes.page.get_by_role("button", name="Put a message").click()
    field = eyes.page.get_by_label("Body")
    field.fill("{")
    expect(eyes.page.get_by_role("button", name="Put", exact=True)).to_be_disabled()
    field.fill('{"to": "ada", "account": 9007199254740993}')
    eyes.page.get_by_label("Kind").fill("send")
    eyes.page.get_by_role("button", name="Put", exact=True).click()
    expect(eyes.page.get_by_role("heading", level=1)).to_contain_text("send")
    (delivery,) = room.queue("emails").claim_many(2)
    assert (delivery.kind, delivery.body) == ("send", {"to": "ada", "account": 2**53 + 1})


def test_a_long_list_draws_what_is_in_sight_and_keeps_its_place(
    look: Look, served: Served, room: Room
) -> None:
    queue = room.queue("bulk")
    for begin in range(0, 3_000, 1_000):
        queue.put_many([queue.message(n, kind=f"row-{n}") for n in range(begin, begin + 1_000)])
    eyes = look(served, "/queues/bulk")
    frame = eyes.page.get_by_role("region", name="ready messages of bulk")
    expect(frame.get_by_text("row-0", exact=True)).to_be_visible()
    # Each time the end comes near, the next page is loaded.
    eyes.page.wait_for_function(
        """() => { const frame = document.querySelector('.table-frame'); frame.scrollTop = frame.scrollHeight;
                   return document.querySelector('.table-foot').textContent.startsWith('3,000 rows'); }"""
    )
    expect(frame.get_by_text("row-2999", exact=True)).to_be_visible()
    assert eyes.page.locator("tbody tr").count() < 80
    delivery = queue.claim()
    assert delivery
    delivery.ack()
    expect(eyes.page.get_by_role("button", name="Ready 2,999")).to_be_visible()
    expect(frame.get_by_text("row-2999", exact=True)).to_be_in_viewport()


def test_what_will_be_tried_again_and_what_is_done_have_tabs(look: Look, served: Served, room: Room) -> None:
    queue = room.queue("pay", Policy(backoff="2h", keep_done="1h"))
    queue.put({}, kind="later", delay="1h")
    failed, done = queue.put({}, kind="flaky"), queue.put({}, kind="fine")
    for delivery in queue.claim_many(2):
        if delivery.id == failed.id:
            delivery.fail(RuntimeError("no answer"))
        else:
            delivery.ack()
    page = look(served, "/queues/pay?show=retrying").page
    retrying = page.get_by_role("table", name="retrying messages of pay").locator("tbody tr")
    expect(retrying).to_have_count(1)
    expect(retrying).to_contain_text("RuntimeError: no answer")
    tabs = page.get_by_role("group", name="What to show")
    expect(tabs.get_by_role("button", name="Scheduled")).to_have_text(re.compile(r"Scheduled\s*2"))
    expect(tabs.get_by_role("button", name="Retrying")).to_have_text(re.compile(r"Retrying\s*1$"))
    # Due later than those two: of more than are looked at, what was found is the least.
    queue.put_many([queue.message({}, delay="1d") for _ in range(1_000)])
    expect(tabs.get_by_role("button", name="Retrying")).to_have_text(re.compile(r"Retrying\s*1\+$"))
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_role("table", name="done messages of pay")).to_contain_text("fine")
    assert queue.get(done.id).state == "done"


def test_the_table_stays_within_its_frame(look: Look, served: Served, room: Room) -> None:
    furnish(room)
    page = look(served, "/queues").page
    expect(page.get_by_role("row")).not_to_have_count(1)
    past = "frame => frame.querySelector('table').offsetWidth - frame.clientWidth"
    for width in (1280, 1360, 1600):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.locator(".table-frame").evaluate(past) <= 0
    # And where it cannot, it scrolls there, unless a menu is open in it.
    assert page.locator(".table-frame").evaluate("frame => getComputedStyle(frame).overflowX") == "auto"


def test_all_that_is_ready_is_shown_by_priority(look: Look, served: Served, room: Room) -> None:
    """Not only what the table has loaded of it."""
    queue = room.queue("emails")
    queue.put_many([queue.message(n) for n in range(600)])
    for priority in ("high", 77):
        queue.put({}, priority=priority)
    levels = look(served, "/queues/emails").page.locator(".levels > div")
    expect(levels).to_have_text(
        [re.compile(r"level\s*77\s*1"), re.compile(r"high\s*10\s*1"), re.compile(r"normal\s*5\s*600")]
    )


def test_new_rows_wait_until_they_are_asked_for(look: Look, served: Served, room: Room) -> None:
    queue = room.queue("bulk")
    queue.put_many([queue.message(n, kind=f"row-{n}") for n in range(150)])
    eyes = look(served, "/queues/bulk")
    expect(eyes.page.get_by_text("row-0", exact=True)).to_be_visible()
    eyes.page.evaluate("document.querySelector('.table-frame').scrollTop = 800")
    expect(eyes.page.get_by_text("row-0", exact=True)).not_to_be_in_viewport()
    queue.put({"urgent": True}, kind="urgent", priority="high")
    pill = eyes.page.get_by_role("button", name="1 new row — show")
    expect(pill).to_be_visible()
    expect(eyes.page.get_by_text("urgent", exact=True)).to_have_count(0)
    pill.click()
    expect(eyes.page.get_by_text("urgent", exact=True)).to_be_in_viewport()


def test_a_viewer_is_offered_nothing_that_would_be_refused(
    look: Look, room: Room, url: str, tmp_path: Path
) -> None:
    furnish(room, ready=10)
    made = tokens.create(room.engine, "vera", Role.VIEWER)
    with serving(url, tmp_path) as closed:
        eyes = look(closed, "/queues/emails")
        eyes.page.get_by_label("Token").fill(made.text)
        eyes.page.get_by_role("button", name="Log in").click()
        expect(eyes.page.get_by_role("heading", name="emails")).to_be_visible()
        main = eyes.page.get_by_role("main")
        expect(main.get_by_role("button", name="Policy")).to_be_visible()
        for name in ("Pause…", "Put a message", "More actions"):
            expect(main.get_by_role("button", name=name)).to_have_count(0)
        eyes.close()


def test_each_queue_has_its_last_hour(look: Look, served: Served, room: Room) -> None:
    room.queue("emails").put(1)
    ring, now = charts.RINGS[1], room.engine.now()
    for minutes in (30, 20, 10):
        at = now - minutes * 60_000
        point = charts.Point(at, (0,) * len(charts.STANDING), (0, 1_200 // minutes, 0, 0, 0, 0))
        key = ring.key("emails", ring.chunk(at))
        kept = room.engine.records.get(charts.KIND, key)
        points = [*(msgspec.json.decode(kept.value) if kept else []), point]
        room.engine.records.put(charts.KIND, key, msgspec.json.encode(points), ttl=ring.kept)
    row = look(served, "/queues").page.get_by_role("row", name="emails")
    expect(row.get_by_role("img", name="last hour: at most")).to_be_visible()


def test_a_pause_ends_by_itself(look: Look, served: Served, room: Room) -> None:
    room.queue("emails").put(1)
    page = look(served, "/queues/emails").page
    page.get_by_role("button", name="Pause…").click()
    dialog = page.get_by_role("dialog", name="Pause emails?")
    dialog.get_by_role("button", name="1 hour").click()
    expect(dialog).to_contain_text("for 1h; then it resumes by itself")
    dialog.get_by_label("Reason").fill("deploy 1.2")
    dialog.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_role("heading", name="emails").locator("time.countdown")).to_contain_text("59:")
    info = room.queue("emails").info()
    assert (info.pause_reason, info.paused) == ("deploy 1.2", True)
    assert info.paused_until is not None
    room.queue("emails").pause("a moment", "3s")
    expect(page.get_by_role("button", name="Pause…")).to_be_visible()
    assert not room.queue("emails").info().paused


def test_a_pause_until_somebody_resumes(look: Look, served: Served, room: Room) -> None:
    room.queue("emails").put(1)
    page = look(served, "/queues/emails").page
    page.get_by_role("button", name="Pause…").click()
    dialog = page.get_by_role("dialog", name="Pause emails?")
    dialog.get_by_role("button", name="Until resumed").click()
    expect(dialog).to_contain_text("until somebody resumes it")
    dialog.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_text("emails is paused.")).to_be_visible()
    assert room.queue("emails").info().paused_until is None
