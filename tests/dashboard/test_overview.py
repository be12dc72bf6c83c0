"""The overview: what it says of a room that is well, and of one that is not."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
from playwright.sync_api import expect

from postroom import Policy, charts, marks
from postroom.room import Room
from tests.dashboard.eyes import Eyes
from tests.dashboard.scenes import fail, furnish
from tests.http.servers import Served

Look = Callable[..., Eyes]


def test_a_room_that_is_well(look: Look, served: Served, room: Room) -> None:
    room.queue("emails", Policy())
    eyes = look(served)
    verdict = eyes.page.get_by_role("region", name="Verdict")
    expect(verdict).to_contain_text("Healthy")
    # The keeper samples every ten seconds; a chart needs two.
    chart = eyes.page.get_by_role("img", name="Messages a second")
    expect(chart).to_be_visible()
    expect(chart.locator("canvas")).to_be_visible()
    box = chart.locator(".u-over").bounding_box()
    assert box
    eyes.page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 40)
    eyes.page.mouse.down()
    eyes.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 40, steps=4)
    eyes.page.mouse.up()
    expect(eyes.page.get_by_role("button", name="Show all")).to_be_visible()
    assert "range=" in eyes.page.url, "the address holds what was drawn over"
    eyes.page.get_by_role("link", name="What died then").click()
    filter = eyes.page.get_by_label("Filter dead letters")
    expect(filter).to_have_value(re.compile("since:.*Z until:.*Z"))
    expect(eyes.page.get_by_text("No dead letter is like that")).to_be_visible()


def test_it_says_what_is_wrong_and_leads_there(look: Look, served: Served, room: Room) -> None:
    room.queue("late", Policy(ack_timeout="1s", lease="1s", capacity=10))
    room.queue("late").put_many([room.queue("late").message(n) for n in range(10)])
    room.queue("reports").put(1)
    room.queue("reports").pause("the warehouse is being moved")
    eyes = look(served)
    verdict = eyes.page.get_by_role("region", name="Verdict")
    expect(verdict).to_contain_text("2 queues need attention")
    expect(verdict).to_contain_text("reports: the warehouse is being moved; 1 message waits")
    expect(verdict).to_contain_text("late: 10 wait, which is its capacity: puts are refused")
    room.queue("reports").resume()
    expect(verdict).to_contain_text("1 queue needs attention")
    verdict.get_by_role("link", name="Full").click()
    expect(eyes.page).to_have_url(f"{served.address}/#/queues/late")


def test_dead_letters_are_compared_with_a_day_ago(look: Look, served: Served, room: Room) -> None:
    ring, at = charts.RINGS[-1], room.engine.now() - 23 * 3_600_000
    stood = {name: 1 if name == "dead" else 0 for name in charts.STANDING}
    point = charts.Point(at, tuple(stood.values()), (0,) * len(charts.COUNTED))
    key = ring.key(charts.ROOM, ring.chunk(at))
    room.engine.records.put(charts.KIND, key, msgspec.json.encode([point]), ttl=ring.kept)
    for _ in range(3):
        room.queue("emails").put(1)
        fail(room, "emails", TimeoutError("no answer"))
    tile = look(served).page.get_by_role("main").get_by_role("link", name="Dead letters").first
    expect(tile).to_contain_text("+2 in 24 h")


#: Every text on a canvas, and how far down it stands; the newest where it is written again.
_WRITTEN = """const write = CanvasRenderingContext2D.prototype.fillText;
window.written = {};
CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
  window.written[text] = this.getTransform().f + y;
  return write.call(this, text, x, y, ...rest);
};"""


def test_a_second_and_an_hour_can_be_read_from_one_chart(look: Look, served: Served, room: Room) -> None:
    room.queue("emails", Policy())
    ring, now = charts.RINGS[0], room.engine.now()
    chunks: dict[int, list[charts.Point]] = {}
    for minutes, oldest in ((40, 0), (30, 200), (20, 2_000), (10, 20 * 60_000)):
        at = now - minutes * 60_000
        stood = {name: oldest if name == "oldest" else 0 for name in charts.STANDING}
        point = charts.Point(at, tuple(stood.values()), (0,) * len(charts.COUNTED))
        chunks.setdefault(ring.chunk(at), []).append(point)
    for chunk, points in chunks.items():
        key = ring.key(charts.ROOM, chunk)
        room.engine.records.put(charts.KIND, key, msgspec.json.encode(points), ttl=ring.kept)
    eyes = look(served)
    eyes.context.add_init_script(_WRITTEN)
    eyes.page.reload()
    expect(eyes.page.get_by_role("img", name="How long messages wait").locator("canvas")).to_be_visible()
    eyes.page.wait_for_function("() => ['100ms', '1s', '10s', '1h'].every((each) => each in window.written)")
    heights = [eyes.page.evaluate("(each) => window.written[each]", each) for each in ("100ms", "1s", "10s")]
    steps = [heights[0] - heights[1], heights[1] - heights[2]]
    assert abs(steps[0] - steps[1]) <= 2 and steps[0] > 10, "ten times as long is one step up, wherever"


def test_numbers_move_by_themselves(look: Look, served: Served, room: Room) -> None:
    furnish(room, ready=10)
    eyes = look(served)
    row = eyes.page.get_by_role("row", name="emails")
    expect(row).to_contain_text("11")
    room.queue("emails").put(1)
    expect(row).to_contain_text("12")
    expect(eyes.page.get_by_text("Declined: account 4711 is closed")).to_be_visible()


def test_held_still_nothing_moves(look: Look, served: Served, room: Room) -> None:
    room.queue("emails").put(1)
    eyes = look(served)
    expect(eyes.page.get_by_role("row", name="emails")).to_be_visible()
    eyes.page.keyboard.press("l")
    expect(eyes.page.get_by_role("button", name="Paused")).to_be_visible()
    room.queue("invoices").put(1)
    with eyes.page.expect_response("**/api/v1/stats"):  # the next look comes with going on, not before
        eyes.page.get_by_role("button", name="Paused").click()
    expect(eyes.page.get_by_role("row", name="invoices")).to_be_visible()


def test_it_tells_how_many_are_due_soon(look: Look, served: Served, room: Room) -> None:
    for minutes in (1, 2, 9, 30):
        room.queue("reports").put({}, delay=minutes * 60)
    eyes = look(served)
    tile = eyes.page.get_by_role("link", name="Due within 10 min")
    expect(tile).to_contain_text("3of 4 scheduled")
    expect(tile.locator("rect")).to_have_count(3)
    tile.click()
    expect(eyes.page).to_have_url(re.compile("/scheduled.ahead=10m"))
    expect(eyes.page.get_by_role("img", name="3 messages due")).to_contain_text("1 later")


def test_a_deploy_is_marked_on_the_charts(look: Look, served: Served, room: Room) -> None:
    room.queue("emails", Policy())
    marks.add(room.engine, "deploy 1.1")
    page = look(served).page
    happened = page.get_by_role("list", name="What happened")
    expect(happened).to_contain_text("deploy 1.1")
    page.get_by_role("button", name="Mark…").click()
    dialog = page.get_by_role("dialog", name="Mark this moment")
    dialog.get_by_label("What happens now").fill("deploy 1.2")
    dialog.get_by_role("button", name="Mark", exact=True).click()
    expect(happened.get_by_role("listitem").first).to_contain_text("deploy 1.2")
    assert [mark.text for mark in marks.read(room.engine, 60_000)] == ["deploy 1.1", "deploy 1.2"]
    page.goto(f"{served.address}/#/queues/emails?show=charts")
    expect(page.get_by_role("list", name="What happened")).to_contain_text("deploy 1.2")
