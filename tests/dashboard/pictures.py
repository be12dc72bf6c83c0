"""The pictures of the documentation, of a room that has worked for an hour.

`make test` takes all of them into `build/images`, and gives the documentation those that it lacks;
`make screenshots` (python -m tests.dashboard.pictures docs/images) replaces them all.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
from playwright.sync_api import Browser, expect, sync_playwright

import postroom
from postroom import Delivery, Worker, audit, charts
from postroom.breaker import TOPIC, Breaker, Change
from postroom.marks import KIND, Cause, Mark
from postroom.room import Room
from postroom.standing import State
from postroom.telemetry import samples
from postroom.telemetry.histogram import Histogram
from tests.dashboard.eyes import Eyes, launch
from tests.dashboard.scenes import MESSAGES, PAGES, PHONE, furnish, places
from tests.http.servers import serving

HOUR = 3_600_000
#: What a picture shows first, beside its pages: what is worth showing on a phone.
ON_A_PHONE = {"overview", "message"}
#: What pages show while somebody works, in the place of what they teach when nobody does.
LIVELY = {
    "overview": "/s",
    "queues": "/s",
    "processing": "images-1",
    "workers": "At this moment",
    "breakers": "their certificate",
    "events": "move to dlq",
    "topics": "no route to host",
    "find": "send_welcome",
}


#: Pages with two charts.
CHARTED = ("overview-", "charts-")
#: What would show where the picture was taken, and what needs five minutes to be seen.
UNSHOWN = {"health", "config", "lanes"}


DESK = {"width": 1360, "height": 860}
THEMES = ("light", "dark")


def main(folder: Path) -> None:
    with sync_playwright() as playwright:
        browser = launch(playwright)
        take_all(browser, folder)
        browser.close()


def names() -> set[str]:
    """The files of all pictures: every page in both themes, and some on a phone."""
    shown = {*PAGES} - UNSHOWN | {f"{name}-phone" for name in ON_A_PHONE}
    return {f"{name}-{theme}.png" for name in shown for theme in THEMES}


def take_all(browser: Browser, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as store:
        url = f"sqlite:///{store}/jobs.db"
        with postroom.open(url) as room, audit.acting("ada"):
            furnish(room)
            remember_an_hour(room)
            shown = {
                name: (path, LIVELY.get(name, text))
                for name, (path, text) in places(room).items()
                if name not in UNSHOWN
            }
        with at_work(url), serving(url, Path(store)) as served:
            for theme in THEMES:
                desk = Eyes(browser, served.address, {"color_scheme": theme, "viewport": DESK})
                phone = Eyes(browser, served.address, {"color_scheme": theme, "viewport": PHONE})
                for name, (path, text) in shown.items():
                    take(desk, path, text, folder / f"{name}-{theme}.png")
                    if name in ON_A_PHONE:
                        take(phone, path, text, folder / f"{name}-phone-{theme}.png")
                desk.close()
                phone.close()
                assert desk.complaints + phone.complaints == []


@contextmanager
def at_work(url: str) -> Iterator[None]:
    """Somebody puts, three workers work, some of it fails, and the bank is away."""
    stopping = threading.Event()
    with postroom.open(url) as room, ExitStack() as crew:
        remember_a_day(room)
        bank = Breaker("bank", room=room)
        with audit.acting("ada"):
            bank.open("their certificate has expired")
            Breaker("mail", room=room).close("it answers again")
        for name, concurrency, work in (
            ("mail-1", 4, {"webhooks": 0.1, "emails": 0.4}),
            ("images-1", 6, {"thumbnails": 9.0}),
            ("payouts-1", 2, {"payouts": 0.8}),
        ):
            handlers = {queue: _handler(stopping, seconds) for queue, seconds in work.items()}
            tied = {"payouts": bank} if "payouts" in work else {}
            crew.enter_context(Worker(room, handlers, name=name, concurrency=concurrency, breakers=tied))
        producer = threading.Thread(target=_produce, args=(room, stopping))
        producer.start()
        try:
            yield
        finally:
            stopping.set()
            producer.join()


def _handler(stopping: threading.Event, seconds: float) -> Callable[[Delivery], None]:
    chance = random.Random(seconds)

    def work(delivery: Delivery) -> None:
        stopping.wait(seconds * (0.5 + chance.random()))
        if delivery.kind == "deliver" and (chance.random() < 0.1 or delivery.message.max_attempts == 1):
            raise ConnectionError("the partner closed the connection")

    return work


def _produce(room: Room, stopping: threading.Event) -> None:
    chance = random.Random(7)
    while not stopping.wait(0.1):
        for name, share in (("emails", 0.9), ("webhooks", 0.8), ("payouts", 0.2), ("thumbnails", 0.08)):
            if chance.random() < share:
                kind, body = MESSAGES[name]
                priority = chance.choice(["low", "normal", "normal", "normal", "high"])
                last = 1 if name == "webhooks" and chance.random() < 0.02 else None
                room.queue(name).put(body, kind=kind, priority=priority, max_attempts=last)


#: Nothing on the page is still to come.
_LOADED = "() => !/^(…|Loading…)$/m.test(document.querySelector('main').innerText)"


def take(eyes: Eyes, path: str, text: str, picture: Path) -> None:
    eyes.go(path)
    expect(eyes.page.get_by_text(text).first).to_be_attached()
    expect(eyes.page.get_by_role("button", name="Live", exact=True)).to_be_visible()
    eyes.page.wait_for_function(_LOADED)
    if picture.name.startswith(CHARTED):  # what draws them is loaded after everything else
        expect(eyes.page.locator(".uplot canvas")).to_have_count(2)
    eyes.page.screenshot(path=picture, animations="disabled")


def remember_a_day(room: Room) -> None:
    """What the breakers went through before."""
    now = room.engine.now()
    for name, hours in (("mail", (20, 9.5, 9.2)), ("bank", (14,))):
        for ago in hours:
            opened, closed = now - int(ago * HOUR), now - int((ago - 0.2) * HOUR)
            told = [
                Change(name, State.CLOSED, State.OPEN, opened, "ConnectionError: no route to host"),
                Change(
                    name, State.OPEN, State.HALF_OPEN, closed - 30_000, "ConnectionError: no route to host"
                ),
                Change(name, State.HALF_OPEN, State.CLOSED, closed, "a call succeeded"),
            ]
            room.engine.publish(TOPIC, [msgspec.json.encode(each._asdict()) for each in told])


# ---- An hour of measurements, as a keeper and workers leave them -----------------------------------


def remember_an_hour(room: Room) -> None:
    now = room.engine.now()
    for name in (charts.ROOM, *(info.name for info in room.queues())):
        _chart(room, name, now)
    _marks(room, now)
    for name, seconds in (("emails", 4.0), ("payouts", 95.0), ("webhooks", 1.2), ("thumbnails", 9.0)):
        _waits(room, f"wait:{name}", seconds, now)


def _marks(room: Room, now: int) -> None:
    for minutes, text, cause in ((42, "deploy 1.1", Cause.DEPLOY), (24, "the bank was away", Cause.NOTE)):
        mark = Mark(at=now - minutes * 60_000, text=text, cause=cause, by="ada")
        room.engine.records.put(KIND, f"{mark.at:015d}:{text}", msgspec.json.encode(mark), ttl=HOUR)


def _chart(room: Room, queue: str, now: int) -> None:
    """Ends where the real counters are, so that the next real sample goes on from there."""
    stats = [each for each in room.stats().queues if queue in (charts.ROOM, each.queue)]
    real = [sum(each.counters[name] for each in stats) for name in charts.COUNTED]
    for ring in charts.RINGS[:2]:
        points = [*_hour(ring.step, now, random.Random(queue))]
        chunks: dict[int, list[charts.Point]] = {}
        for at, standing, counted in points:
            ends = zip(real, counted, points[-1][2], strict=True)
            known = tuple(int(end + each - last) for end, each, last in ends)
            chunks.setdefault(ring.chunk(at), []).append(charts.Point(at, standing, known))
        for chunk, kept in chunks.items():
            room.engine.records.put(charts.KIND, ring.key(queue, chunk), msgspec.json.encode(kept), ttl=HOUR)


def _hour(step: int, now: int, chance: random.Random) -> Iterator[tuple[int, tuple[int, ...], list[float]]]:
    """A tide, with five minutes in which nobody worked and what waited grew older."""
    counted, waiting, dead = [0.0] * len(charts.COUNTED), 150.0, 5
    stop, go_on = now - 1_500_000, now - 1_200_000
    for at in range(now - HOUR + step, now - step // 2, step):
        tide = 12 + 4 * math.sin(at / 600_000) + 2 * chance.random()
        idle = stop < at < go_on
        done = 0 if idle else min(tide + (waiting - 150) / 60, 30)
        waiting += (tide - done) * step / 1_000
        died = chance.random() < 0.01
        dead += died
        grown = (tide, done, 0 if idle else 0.8 * chance.random(), died * 1_000 / step, 0, 0)
        counted = [before + each * step / 1_000 for before, each in zip(counted, grown, strict=True)]
        oldest = at - stop if idle else int(2_000 + 1_500 * chance.random())
        standing = (int(waiting), 4, 0 if idle else 2 + int(3 * chance.random()), 0, dead, oldest)
        yield at, standing, counted


def _waits(room: Room, key: str, seconds: float, now: int) -> None:
    total, minutes = Histogram(), {}
    chance = random.Random(key)
    for minute in range(now // samples.MINUTE - 59, now // samples.MINUTE + 1):
        waits = Histogram()
        for _ in range(50):
            waits.add(seconds * chance.lognormvariate(-1, 0.7))
        total.merge(waits)
        minutes[str(minute)] = waits.to_plain()
    sample = samples.Sample(since=now - HOUR, total=total.to_plain(), minutes=minutes)
    room.engine.records.put(samples.KIND, key, msgspec.json.encode(sample), ttl=HOUR)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
