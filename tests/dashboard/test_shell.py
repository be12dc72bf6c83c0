"""What is around every page: it loads, is live, obeys the keyboard, themes, a phone, a server that goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from postroom.http import tokens
from postroom.http.roles import Role
from postroom.room import Room
from tests.dashboard.eyes import Eyes
from tests.http.servers import Served, serving
from tests.redis.servers import claimed_port

Look = Callable[..., Eyes]


def test_it_opens_and_is_live(eyes: Eyes) -> None:
    expect(eyes.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    expect(eyes.page.get_by_role("button", name="Live", exact=True)).to_be_visible()
    expect(eyes.page.get_by_text("No queue yet")).to_be_visible()


def test_the_palette_finds_a_queue_that_came_while_it_is_open(eyes: Eyes, room: Room) -> None:
    eyes.page.keyboard.press("Control+k")
    eyes.page.get_by_role("combobox").fill("outg")
    option = eyes.page.get_by_role("option", name="emails.outgoing")
    expect(option).to_have_count(0)
    room.queue("emails.outgoing").put({"n": 1})
    expect(option).to_have_attribute("aria-selected", "true")


def test_the_keyboard_finds_a_queue_and_a_page(eyes: Eyes, room: Room) -> None:
    room.queue("emails.outgoing").put({"n": 1})
    expect(eyes.page.get_by_text("No queue yet")).to_have_count(0)
    eyes.page.keyboard.press("Control+k")
    field = eyes.page.get_by_role("combobox")
    expect(field).to_be_focused()
    field.fill("outg")
    expect(eyes.page.get_by_role("option", name="emails.outgoing")).to_have_attribute("aria-selected", "true")
    eyes.page.keyboard.press("Enter")
    expect(eyes.page).to_have_url(f"{eyes.address}/#/queues/emails.outgoing")
    eyes.page.keyboard.press("g")
    eyes.page.keyboard.press("o")
    expect(eyes.page).to_have_url(f"{eyes.address}/#/")
    eyes.page.keyboard.press("?")
    expect(eyes.page.get_by_role("dialog", name="Keyboard")).to_contain_text("Go to")
    eyes.page.keyboard.press("Escape")
    expect(eyes.page.get_by_role("dialog")).to_have_count(0)


#: Presses ⌘K in the moment in which the page is there.
_AT_ONCE = """new MutationObserver((_, watching) => {
  if (!document.querySelector("main")) return;
  watching.disconnect();
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "k", ctrlKey: true }));
}).observe(document, { childList: true, subtree: true });"""


def test_the_keys_work_as_soon_as_the_page_is_there(eyes: Eyes) -> None:
    eyes.context.add_init_script(_AT_ONCE)
    eyes.page.reload()
    expect(eyes.page.get_by_role("combobox")).to_be_focused()


def test_the_theme_is_kept(eyes: Eyes) -> None:
    root = eyes.page.locator("html")
    eyes.page.get_by_role("button", name="Theme: auto").click()
    expect(root).to_have_attribute("data-theme", "light")
    eyes.page.keyboard.press("t")
    expect(root).to_have_attribute("data-theme", "dark")
    eyes.page.reload()
    expect(root).to_have_attribute("data-theme", "dark")
    expect(eyes.page.locator("body")).to_have_css("background-color", "oklch(0.185 0.012 264)")


def test_it_says_which_room_this_is(look: Look, url: str, tmp_path: Path) -> None:
    told = {"POSTROOM_HTTP_ENVIRONMENT": "production", "POSTROOM_HTTP_ENVIRONMENT_COLOUR": "red"}
    with serving(url, tmp_path, **told) as named:
        eyes = look(named)
        badge = eyes.page.get_by_title("production on sqlite")
        expect(badge).to_have_text("productionsqlite")
        expect(badge).to_have_class("badge environment bad")
        eyes.page.set_viewport_size({"width": 390, "height": 844})
        expect(badge).to_have_text("production", use_inner_text=True)
        assert eyes.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        eyes.close()


def test_the_address_holds_the_time_zone(look: Look, served: Served, room: Room) -> None:
    id = room.queue("emails").put(1).id
    path, moment = f"/queues/emails/messages/{id}", ".timeline time"
    eyes = look(served, path, timezone_id="Asia/Tokyo")
    expect(eyes.page.locator(moment).first).not_to_contain_text("UTC")
    eyes.page.get_by_role("button", name="Times: local").click()
    expect(eyes.page.locator(moment).first).to_contain_text("UTC")
    assert eyes.page.url.endswith(f"{path}?tz=utc")
    eyes.page.get_by_role("navigation").get_by_role("link", name="Queues").click()
    expect(eyes.page).to_have_url(f"{served.address}/#/queues?tz=utc")
    other = look(served, f"{path}?tz=utc", timezone_id="Asia/Tokyo")
    expect(other.page.locator(moment).first).to_contain_text("UTC")
    other.page.get_by_role("button", name="Times: UTC").click()
    expect(other.page).to_have_url(f"{served.address}/#{path}")
    expect(other.page.locator(moment).first).not_to_contain_text("UTC")


def test_on_a_phone_nothing_is_wider_than_the_screen(look: Look, served: Served) -> None:
    eyes = look(served, viewport={"width": 390, "height": 844}, has_touch=True)
    expect(eyes.page.get_by_role("navigation", name="Pages")).to_be_in_viewport()
    assert eyes.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_server_that_comes_back_needs_no_reload(look: Look, room: Room, url: str, tmp_path: Path) -> None:
    number, held = claimed_port()
    port = str(number)
    with held, serving(url, tmp_path, "--port", port) as first:
        eyes = look(first)
        expect(eyes.page.get_by_role("button", name="Live", exact=True)).to_be_visible()
        eyes.forgive("ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE")
        first.terminate()
        expect(eyes.page.get_by_role("button", name="Offline")).to_be_visible()
        room.queue("emails").put(1)
        with serving(url, tmp_path, "--port", port):
            expect(eyes.page.get_by_role("button", name="Live", exact=True)).to_be_visible()
            expect(eyes.page.get_by_text("No queue yet")).to_have_count(0)
            eyes.close()


#: A tab in the background, as the page is told of it: no browser without a screen has one.
HIDE = """(isHidden) => {
  Object.defineProperty(document, "hidden", {configurable: true, get: () => isHidden});
  document.dispatchEvent(new Event("visibilitychange")); }"""


def test_a_tab_that_nobody_sees_sleeps_and_catches_up(look: Look, served: Served, room: Room) -> None:
    room.queue("emails").put(1)
    eyes = look(served)
    eyes.page.clock.install()
    eyes.go("/queues/emails")
    expect(eyes.page.get_by_role("button", name="Ready 1")).to_be_visible()
    expect(eyes.page.get_by_role("button", name="Live", exact=True)).to_be_visible()
    with eyes.page.expect_event("requestfailed", lambda request: "/events" in request.url):
        eyes.page.evaluate(HIDE, True)
        eyes.page.clock.run_for(15_000)  # then it lets go of its line
    asked: list[str] = []
    eyes.page.on("request", lambda request: asked.append(request.url))
    room.queue("emails").put(2)
    eyes.page.clock.run_for(600_000)
    assert asked == []
    eyes.page.evaluate(HIDE, False)
    expect(eyes.page.get_by_role("button", name="Ready 2")).to_be_visible()
    expect(eyes.page.get_by_role("button", name="Live", exact=True)).to_be_visible()
    assert len([url for url in asked if "/events" in url]) == 1


def test_where_tokens_are_asked_for_one_logs_in(look: Look, room: Room, url: str, tmp_path: Path) -> None:
    made = tokens.create(room.engine, "ada", Role.VIEWER)
    with serving(url, tmp_path) as closed:
        eyes = look(closed)
        eyes.forgive("status of 401")
        eyes.page.get_by_label("Token").fill("wrong")
        eyes.page.get_by_role("button", name="Log in").click()
        expect(eyes.page.get_by_role("alert")).to_contain_text("wrong, expired or revoked")
        eyes.page.get_by_label("Token").fill(made.text)
        eyes.page.get_by_role("button", name="Log in").click()
        expect(eyes.page.get_by_role("heading", name="Overview")).to_be_visible()
        expect(eyes.page.get_by_role("navigation", name="Pages")).to_contain_text("viewer")
        eyes.page.get_by_role("button", name="Log out").click()
        expect(eyes.page.get_by_label("Token")).to_be_visible()
        eyes.close()
