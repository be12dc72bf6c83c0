"""What holds on every page: one line of events, roles, the keyboard alone, Redis as well as a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

import postroom
from postroom import Worker
from postroom.breaker import Breaker
from postroom.http import tokens
from postroom.http.roles import Role
from postroom.room import Room
from tests.dashboard import scenes
from tests.dashboard.eyes import Eyes
from tests.http.servers import Served, serving
from tests.redis import servers as redis_servers

Look = Callable[..., Eyes]
#: What a role is offered in the furnished room, by place and what is there once it is loaded; whatever else
#: of these is on the page is wrong.
OFFERED = {
    ("/queues/emails", "send_welcome"): {
        "Put a message": Role.OPERATOR, "Pause…": Role.OPERATOR, "More actions": Role.ADMIN,
    },
    ("{dead}", "Became a dead letter"): {
        "Replay": Role.OPERATOR, "Discard…": Role.ADMIN, "As stored": Role.ADMIN,
    },
    ("{letter}", "Payload hash"): {
        "Replay": Role.OPERATOR, "Edit and replay…": Role.OPERATOR, "Discard…": Role.ADMIN,
    },
    ("/dead?q=queue:payouts", "account 4711"): {"Replay…": Role.OPERATOR, "Discard…": Role.ADMIN},
    ("/", "What fails"): {"Mark…": Role.OPERATOR},
    ("/queues", "p95 wait"): {"Actions for emails": Role.OPERATOR},
    ("/processing?queue=thumbnails", "resize"): {"Actions for {held}": Role.OPERATOR},
    ("/scheduled?queue=reports", "Why it waits"): {"Actions for {later}": Role.OPERATOR},
    ("/settings", "How it stands"): {
        "Health": Role.OPERATOR, "Configuration": Role.OPERATOR, "Audit": Role.OPERATOR, "Tokens": Role.ADMIN,
    },
    ("/workers", "desk-7"): {"Quiet desk-7": Role.OPERATOR, "Stop desk-7": Role.OPERATOR},
    ("/breakers", "a test"): {"Close bank": Role.OPERATOR},
}  # fmt: skip
RANKS = [Role.VIEWER, Role.OPERATOR, Role.ADMIN]


def test_one_line_of_events_serves_every_page(look: Look, served: Served, room: Room) -> None:
    scenes.furnish(room)
    eyes = look(served)
    lines: list[str] = []
    eyes.page.on(
        "request", lambda request: lines.append(request.url) if "/api/v1/events" in request.url else None
    )
    eyes.page.reload()
    expect(eyes.page.get_by_role("button", name="Live", exact=True)).to_be_visible()
    for path, text in scenes.places(room).values():
        eyes.go(path)
        expect(eyes.page.get_by_text(text).first).to_be_visible()
    assert len(lines) == 1


@pytest.mark.parametrize("role", RANKS)
def test_every_role_is_offered_what_it_may_do(
    look: Look, room: Room, url: str, tmp_path: Path, role: Role
) -> None:
    scenes.furnish(room)
    Breaker("bank", room=room).open("a test")
    made = tokens.create(room.engine, "somebody", role)
    places = scenes.places(room)
    names = {
        "dead": places["message"][0],
        "letter": places["letter"][0],
        "held": room.queue("thumbnails").find("processing").entries[0].id,
        "later": room.queue("reports").find("scheduled").entries[0].id,
    }
    worker = Worker(room, {"nothing": print}, name="desk-7", keeper=False)
    with worker, serving(url, tmp_path) as closed:
        eyes = look(closed)
        eyes.page.get_by_label("Token").fill(made.text)
        eyes.page.get_by_role("button", name="Log in").click()
        expect(eyes.page.get_by_role("navigation", name="Pages")).to_contain_text(role)
        for (path, text), offered in OFFERED.items():
            eyes.go(path.format_map(names))
            expect(eyes.page.get_by_role("main").get_by_text(text).first).to_be_visible()
            for name, least in offered.items():
                named = name.format_map(names)
                button = eyes.page.get_by_role("main").get_by_role("button", name=named, exact=True)
                expect(button).to_have_count(1 if RANKS.index(role) >= RANKS.index(least) else 0)
        eyes.close()


def test_the_keyboard_alone_leads_to_a_message_and_back(look: Look, served: Served, room: Room) -> None:
    scenes.furnish(room)
    eyes = look(served)
    press = eyes.page.keyboard.press
    expect(eyes.page.get_by_role("row", name="webhooks")).to_be_visible()
    press("g")
    press("q")
    expect(eyes.page.get_by_role("heading", name="Queues", level=1)).to_be_focused()
    for _ in range(5):
        press("j")
    expect(eyes.page.locator("tr.current")).to_contain_text("webhooks")
    press("Enter")
    expect(eyes.page).to_have_url(f"{served.address}/#/queues/webhooks")
    dead = eyes.page.get_by_role("button", name="Dead 6")
    expect(dead).to_be_visible()
    for _ in range(40):
        press("Tab")
        if dead.evaluate("node => node === document.activeElement"):
            break
    press("Enter")
    expect(eyes.page.get_by_text("TimeoutError: the partner").first).to_be_visible()
    press("j")
    press("Enter")
    expect(eyes.page.get_by_role("heading", level=1)).to_contain_text("dead")
    eyes.page.go_back()
    expect(eyes.page).to_have_url(f"{served.address}/#/queues/webhooks?show=dead")


@pytest.fixture
def on_redis(tmp_path: Path) -> Iterator[tuple[Served, Room]]:
    folder = tmp_path / "redis"
    folder.mkdir()
    with (
        redis_servers.single() as redis,
        postroom.open(redis.url()) as room,
        serving(redis.url(), folder) as served,
    ):
        yield served, room


def test_every_page_on_redis(on_redis: tuple[Served, Room], look: Look) -> None:
    served, room = on_redis
    scenes.furnish(room)
    eyes = look(served)
    places = scenes.places(room)
    for path, text in places.values():
        eyes.go(path)
        expect(eyes.page.get_by_text(text).first).to_be_visible()
    eyes.go(places["message"][0])
    eyes.page.get_by_role("button", name="Replay").click()
    expect(eyes.page.get_by_role("heading", level=1)).to_contain_text("ready")
    eyes.close()
