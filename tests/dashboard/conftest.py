"""The dashboard in a real Chromium, in front of a real server on a file; what it complains about is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

import postroom
from postroom.room import Room
from tests.dashboard.eyes import Eyes, launch
from tests.http.servers import Served, serving


# Of a module, not of the session: while Playwright runs, no other test of this process could run asyncio.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def served(url: str, tmp_path: Path) -> Iterator[Served]:
    """A server that has this test's room for itself; tests put into it with `room`."""
    with serving(url, tmp_path) as served:
        yield served


@pytest.fixture
def room(url: str) -> Iterator[Room]:
    """The room that the server shows, opened here too."""
    with postroom.open(url) as room:
        yield room


@pytest.fixture
def look(browser: Browser, served: Served) -> Iterator[Callable[..., Eyes]]:
    """Opens tabs; at the end, each must have been silent and stayed at home.

    It needs `served` to end before that server does; before one of its own ends, a test closes its tab.
    """
    opened: list[Eyes] = []

    def looking(served: Served, path: str = "/", **options: object) -> Eyes:
        eyes = Eyes(browser, served.address, options)
        opened.append(eyes)
        eyes.go(path)
        return eyes

    yield looking
    for eyes in opened:
        eyes.close()
    complaints = [complaint for eyes in opened for complaint in eyes.complaints]
    assert complaints == []


@pytest.fixture
def eyes(look: Callable[..., Eyes], served: Served) -> Eyes:
    """A tab at the overview."""
    return look(served)
