"""Each picture is shown on some page, and each page of the dashboard has its own, light and dark."""

from __future__ import annotations

import re

from tests.dashboard.pictures import UNSHOWN, names
from tests.dashboard.scenes import PAGES
from tests.docs.blocks import REPO

IMAGES = REPO / "docs" / "images"
GALLERY = REPO / "docs" / "how-to" / "dashboard-in-pictures.md"
SHOWN = re.compile(r"!\[[^\]]+\]\([^)]*images/([^)]+)\)")


def shown_on(text: str) -> list[str]:
    return SHOWN.findall(text)


def test_every_picture_is_shown_on_some_page() -> None:
    pages = [REPO / "README.md", *REPO.glob("docs/**/*.md")]
    shown = {name for page in pages for name in shown_on(page.read_text(encoding="utf-8"))}
    assert {picture.name for picture in IMAGES.iterdir()} == shown


def test_the_gallery_shows_every_page_in_both_themes() -> None:
    shown = shown_on(GALLERY.read_text(encoding="utf-8"))
    assert len(shown) == len(set(shown))
    assert set(shown) == names()


def test_every_page_of_the_dashboard_is_among_the_pictures() -> None:
    """A path of pages.js, such as /queues/:queue, is the place of some picture."""
    source = (REPO / "src/postroom/dashboard/pages.js").read_text(encoding="utf-8")
    paths = re.findall(r'{ path: "([^"]+)", title:', source)
    places = [path.partition("?")[0] for name, (path, _) in PAGES.items() if name not in UNSHOWN]
    filled = {"{dead}": "/queues/webhooks/messages/7", "{letter}": "/dead/webhooks/7"}
    found = [filled.get(place, place) for place in places]
    missing = [
        path
        for path in paths
        if not any(re.fullmatch(re.sub(r":\w+", "[^/]+", path), each) for each in found)
    ]
    assert len(paths) > 10
    assert missing == []
