"""What one gets with a screen reader, in a dark room, on a phone: axe on every page, nothing too wide."""

from __future__ import annotations

import re
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


# ---- what only the style sheets say ------------------------------------------------------------------

#: Everything whose animation or transition takes longer than 0.01 s; a toast and a row that went come and go
#: too quickly to be looked at, so one of each is lent to the page.
_MOVING = """() => {
  const lent = [["div", "toast"], ["table", "lent"]].map(([tag, name]) => Object.assign(document.createElement(tag), {className: name}));
  const row = lent[1].insertRow();
  row.className = "gone";
  row.insertCell();
  document.body.append(...lent);
  const found = [...document.querySelectorAll("*")].flatMap((node) => ["", "::before", "::after"].flatMap((part) => {
    const style = getComputedStyle(node, part || null);
    const spans = [style.animationName === "none" ? "0s" : style.animationDuration, style.transitionDuration];
    const longest = Math.max(...spans.join().split(",").map((each) => parseFloat(each) * (each.endsWith("ms") ? 1e-3 : 1)));
    return longest > 0.01 ? [node.closest("tr.gone") ? "gone" : node.className] : [];
  }));
  lent.forEach((each) => each.remove());
  return found;
}"""  # noqa: E501 — a program for the page


def test_nothing_moves_for_who_wants_it_still(
    look: Look, served: Served, places: dict[str, tuple[str, str]]
) -> None:
    eyes = look(served)
    for name, (path, text) in places.items():
        eyes.go(path)
        expect(eyes.page.get_by_text(text).first).to_be_attached()
        expect(eyes.page.get_by_role("button", name="Live", exact=True)).to_be_visible()
        eyes.page.emulate_media(reduced_motion="no-preference")
        assert {"dot", "toast", "gone"} <= set(eyes.page.evaluate(_MOVING)), name
        eyes.page.emulate_media(reduced_motion="reduce")
        assert eyes.page.evaluate(_MOVING) == [], name


#: What has the focus: its kind, how thick its outline is, and how well that is seen on the page (1 to 21).
_FOCUSED = """() => {
  const light = (colour) => {
    const pen = document.createElement("canvas").getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    const parts = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).map((each) => each / 255);
    const [r, g, b] = parts.map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const node = document.activeElement, style = getComputedStyle(node);
  const lights = [light(style.outlineColor), light(getComputedStyle(document.body).backgroundColor)];
  const width = style.outlineStyle === "solid" ? parseFloat(style.outlineWidth) : 0;
  return [node.localName, width, Math.max(...lights) / Math.min(...lights), node.outerHTML.slice(0, 100)];
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.usefixtures("places")
def test_what_has_the_focus_is_seen(look: Look, served: Served, theme: str) -> None:
    page = look(served, "/dead", color_scheme=theme).page
    expect(page.get_by_role("table", name="Dead letters")).to_contain_text("the partner did not answer")
    kinds = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        kind, width, contrast, what = page.evaluate(_FOCUSED)
        if kind == "body":  # behind the last, before the first
            continue
        assert width >= 2 and contrast >= 3, f"{what}: {width} px, {contrast:.1f}:1"
        kinds.add(kind)
    assert {"a", "button", "input"} <= kinds
    page.locator("main").focus()
    page.keyboard.press("j")
    row = page.locator("tr.current td").first
    expect(row).to_have_css("box-shadow", re.compile("inset"))
    expect(page.locator("tr.current")).to_have_count(1)
