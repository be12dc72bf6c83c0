"""What one gets with a screen reader, in a dark room, on a phone: axe on every page, nothing too wide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from postroom.room import Room
from tests.dashboard import scenes
from tests.dashboard.eyes import Eyes
from tests.dashboard.scenes import PHONE, furnish
from tests.http.servers import Served

Look = Callable[..., Eyes]

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture
def places(room: Room) -> dict[str, tuple[str, str]]:
    """The pages with something on them."""
    furnish(room)
    return scenes.places(room)


def violations(eyes: Eyes) -> list[str]:
    """What axe finds that is serious, by rule and place. Its script comes past the page's own policy."""
    if not eyes.page.evaluate("() => 'axe' in window"):
        eyes.page.evaluate(AXE.read_text(encoding="utf-8"))
    found: dict[str, Any] = eyes.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {node['html'][:200]}: {node.get('failureSummary', '')[:300]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    look: Look, served: Served, places: dict[str, tuple[str, str]], theme: str
) -> None:
    eyes = look(served, color_scheme=theme)
    found = []
    for name, (path, text) in places.items():
        eyes.go(path)
        expect(eyes.page.get_by_text(text).first).to_be_visible()
        found += [f"{name}: {each}" for each in violations(eyes)]
    eyes.page.keyboard.press("Control+k")
    expect(eyes.page.get_by_role("combobox")).to_be_focused()
    found += [f"palette: {each}" for each in violations(eyes)]
    assert found == []


def test_on_a_phone_every_page_fits(look: Look, served: Served, places: dict[str, tuple[str, str]]) -> None:
    eyes = look(served, viewport=PHONE, has_touch=True)
    for name, (path, text) in places.items():
        eyes.go(path)
        expect(eyes.page.get_by_text(text).first).to_be_attached()
        width = eyes.page.evaluate("() => document.querySelector('main').scrollWidth - innerWidth")
        assert width <= 0, f"{name} is {width} px too wide"
