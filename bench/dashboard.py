"""The dashboard in a real Chromium, in front of a real server: what it weighs, when it can be used, what it
costs the browser while 50,000 countdowns run, and whether it grows while events come in for long.

What it costs is the browser's own word: processor time of the page's thread, and the heap after a collection.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import postroom
from bench.http import Served, served
from bench.measure import Case
from bench.stage import Stage, fill
from postroom import Policy
from postroom.engine import ClaimRequest
from postroom.model import Settlement, Verb
from postroom.queue import Queue

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page

#: How long anything may take in the browser (ms).
_PATIENCE = 300_000
#: What somebody scrolls through who looks for something: so many screens, each seen for a moment (ms).
_SCREENS, _GLANCE = 60, 50
#: Events a second, and threads that bring them about: a disk serves several at once.
_EVENTS, _HANDS = 200, 4
#: For so long nobody loses what he works on.
_LONG = "12h"

#: Notes when the overview has its figures: everything is there by then and answers.
_WHEN_USABLE = """new MutationObserver((_, watcher) => {
  if (!document.querySelector('.tiles')) return;
  watcher.disconnect();
  requestAnimationFrame(() => { window.usableAt = performance.now(); });
}).observe(document, {childList: true, subtree: true});"""
#: What had come over the line by a moment, as it came, heads included, without what is told of the room.
#: What comes later, in idle moments or with the first chart, is no part of the first load.
_WEIGHT = """(until) => ['navigation', 'resource'].flatMap((type) => performance.getEntriesByType(type))
  .filter((each) => each.responseEnd <= until && !each.name.includes('/api/'))
  .reduce((sum, each) => sum + each.transferSize, 0)"""
_ALL_LOADED = """(rows) => {
  const frame = document.querySelector('.table-frame');
  if (frame) frame.scrollTop = frame.scrollHeight;
  const foot = document.querySelector('.table-foot')?.textContent;
  return foot?.startsWith(`${rows.toLocaleString('en-US')} rows`); }"""
_SCROLL = """async ([screens, glance]) => {
  const frame = document.querySelector('.table-frame');
  let most = 0;
  for (let screen = 0; screen < screens; screen += 1) {
    frame.scrollTop = ((screen * 7919) % screens) * (frame.scrollHeight / screens);
    await new Promise((resolve) => setTimeout(resolve, glance));
    most = Math.max(most, document.querySelectorAll('.table-frame tbody tr').length);
  }
  return most; }"""


def cases(stage: Stage) -> list[Case]:
    if not stage.kind.durable:  # the browser is the same whatever the server keeps its messages in
        return []
    return [_first_load(stage), _countdowns(stage), _events(stage)]


class Sight:
    """A tab that nobody has used, and what the browser says it costs."""

    def __init__(self, browser: Browser, server: Served, path: str) -> None:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        self.page: Page = context.new_page()
        self.page.set_default_timeout(_PATIENCE)
        self.page.add_init_script(_WHEN_USABLE)
        self._line: CDPSession = context.new_cdp_session(self.page)
        self._line.send("Performance.enable", {"timeDomain": "threadTicks"})
        self.page.goto(f"http://127.0.0.1:{server.port}/#{path}")

    def scripting(self, work: Callable[[], object]) -> float:
        """Milliseconds of processor time that the page's thread spends while this is done, but for styles and
        layout: its scripts, what they parse, their garbage, and painting. What others do does not count."""
        before = self._spent()
        work()
        return (self._spent() - before) * 1_000

    def _spent(self) -> float:
        found: dict[str, Any] = self._line.send("Performance.getMetrics")
        spent: dict[str, float] = {each["name"]: each["value"] for each in found["metrics"]}
        return spent["TaskDuration"] - spent["LayoutDuration"] - spent["RecalcStyleDuration"]

    def heap(self) -> float:
        """What is left after a collection (MB)."""
        self._line.send("HeapProfiler.collectGarbage")
        found: dict[str, Any] = self._line.send("Runtime.getHeapUsage")
        return float(found["usedSize"]) / 2**20

    def stay(self, seconds: float) -> None:
        self.page.wait_for_timeout(seconds * 1_000)


@contextmanager
def _looking(url: str, path: str) -> Iterator[Sight]:
    from playwright.sync_api import sync_playwright  # here: who measures something else needs no browser

    from tests.dashboard.eyes import launch

    with served(url) as server, sync_playwright() as playwright:
        browser = launch(playwright)
        try:
            yield Sight(browser, server, path)
        finally:
            browser.close()


# ---- The first load ---------------------------------------------------------------------------------


def _first_load(stage: Stage) -> Case:
    def trial() -> list[float]:
        with stage.url() as url:
            with postroom.open(url) as room:
                fill(room.queue("emails"), 100)
            with _looking(url, "/") as sight:
                sight.page.wait_for_function("() => window.usableAt")
                usable = float(sight.page.evaluate("window.usableAt"))
                return [float(sight.page.evaluate(_WEIGHT, usable)) / 1_000, usable]

    figures = (
        stage.figure("dashboard: first load in all, compressed", "KB"),
        stage.figure("dashboard: can be used after", "ms"),
    )
    return Case("dashboard: first load", figures, trial)


# ---- Fifty thousand countdowns ----------------------------------------------------------------------


def _countdowns(stage: Stage) -> Case:
    count, watched = stage.size(50_000, 2_000), stage.size(10, 2)
    store = _Processing(stage, count)

    def trial() -> list[float]:
        with _looking(store.url(), "/processing") as sight:
            sight.page.wait_for_selector("time.countdown")
            opened = _each_second(sight, watched)
            sight.page.wait_for_function(_ALL_LOADED, arg=count)
            drawn: list[int] = []
            scrolled = sight.scripting(
                lambda: drawn.append(sight.page.evaluate(_SCROLL, [_SCREENS, _GLANCE]))
            )
            sight.stay(2)
            return [opened, _each_second(sight, watched), scrolled / _SCREENS, float(drawn[0])]

    name = f"dashboard: {count // 1_000} k processing"
    figures = (
        stage.figure(f"{name}: scripts a second, as opened", "ms"),
        stage.figure(f"{name}: scripts a second, all loaded", "ms"),
        stage.figure(f"{name}: scripts for a screen of scrolling", "ms"),
        stage.figure(f"{name}: rows drawn at most", "", summary=max),
    )
    return Case(name, figures, trial, prepare=store.url)


def _each_second(sight: Sight, watched: int) -> float:
    """Milliseconds of scripts in a second in which nobody does anything."""
    return sight.scripting(lambda: sight.stay(watched)) / watched


class _Processing:
    """A store in which so many messages are worked on, made when it is first asked for."""

    def __init__(self, stage: Stage, count: int) -> None:
        self._stage, self._count, self._url = stage, count, ""

    def url(self) -> str:
        if not self._url:
            with ExitStack() as making:
                url = making.enter_context(self._stage.url())
                self._stage.say(f"for the dashboard: {self._count:,} messages begin")
                with postroom.open(url) as room:
                    _begin(room.queue("slow", Policy(lease=_LONG, ack_timeout=_LONG)), self._count)
                self._stage.kept.push(making.pop_all())
                self._url = url
        return self._url


def _begin(queue: Queue, count: int) -> None:
    fill(queue, count)
    for done in range(0, count, 1_000):
        request = ClaimRequest(
            n=min(1_000, count - done), lease=queue.policy.lease, consumer=f"worker-{done}"
        )
        assert queue.room.engine.claim(queue.name, request).deliveries


# ---- Events for long --------------------------------------------------------------------------------


def _events(stage: Stage) -> Case:
    seconds, warm = stage.soak or stage.size(30, 2), stage.size(10, 1)

    def trial() -> list[float]:
        with stage.url() as url, _retrying(url) as told, _looking(url, "/events") as sight:
            sight.page.wait_for_selector(".tail li")
            sight.stay(warm)
            before, counted, began = sight.heap(), told(), time.monotonic()
            sight.stay(seconds)
            pace = (told() - counted) / (time.monotonic() - began)
            return [sight.heap() - before, pace]

    name = f"dashboard: {_EVENTS} events/s"
    figures = (stage.figure(f"{name}: heap grows by", "MB"), stage.figure(f"{name}: reached", "/s"))
    note = f"The dashboard's heap was watched for {seconds} s; --soak 600 watches for ten minutes."
    return Case(name, figures, trial, notes=lambda: [note])


@contextmanager
def _retrying(url: str) -> Iterator[Callable[[], int]]:
    """Work that fails so often a second, each failure an event of its own; how many there were."""
    stopping, failed = threading.Event(), [0] * _HANDS
    with postroom.open(url) as room:
        queue = room.queue("failing", Policy(max_attempts=1_000))
        fill(queue, 2 * _EVENTS)
        hands = [threading.Thread(target=_fail, args=(queue, failed, n, stopping)) for n in range(_HANDS)]
        for hand in hands:
            hand.start()
        try:
            yield lambda: sum(failed)
        finally:
            stopping.set()
            for hand in hands:
                hand.join()


def _fail(queue: Queue, failed: list[int], number: int, stopping: threading.Event) -> None:
    """One hand's share of the failures, evenly over time."""
    engine, began = queue.room.engine, time.monotonic()
    while not stopping.is_set():
        held = engine.claim(queue.name, ClaimRequest(n=_EVENTS // _HANDS, lease=60_000)).deliveries
        for each in held:
            engine.settle(queue.name, [Settlement(each.receipt, Verb.RETRY, delay=1_000)])
            failed[number] += 1
            stopping.wait(max(0.0, began + failed[number] * _HANDS / _EVENTS - time.monotonic()))
        if not held:
            stopping.wait(0.05)
