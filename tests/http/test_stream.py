"""Live events: each once, in spec 3's words, made up for after a break, and no client is a burden."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

import postroom
from postroom import audit
from postroom.engine import ClaimRequest, Engine
from postroom.engines.memory import MemoryEngine
from postroom.errors import EngineUnavailable, InvalidInput
from postroom.history import Lifecycle
from postroom.http import stream
from postroom.http.feeds import LIFECYCLE, OVERDUE, Told, read_feeds, read_topic, told_of_log
from postroom.http.redaction import HIDDEN, Redaction
from postroom.http.stream import PART, Client, EventStream, Feed, Hub
from postroom.logs import Log, LogEntry
from postroom.model import NewMessage
from postroom.testing.clock import ManualClock
from tests.redis import servers

PATIENCE = 60.0
BOTH = frozenset({LIFECYCLE, OVERDUE})


class Seen(NamedTuple):
    """An event as a client reads it."""

    name: str
    data: Any
    id: str = ""


def parse(text: str) -> Iterator[Seen]:
    for block in text.split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in block.splitlines())
        if "event" in fields:
            yield Seen(fields["event"], json.loads(fields["data"]), fields.get("id", ""))


class Listener:
    """Reads what a client of a hub is sent, until there is what is waited for."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.seen: list[Seen] = []

    async def until(self, done: Callable[[list[Seen]], bool]) -> list[Seen]:
        async with asyncio.timeout(PATIENCE):
            while not done(self.seen):
                frames = await self.client.next()
                assert frames or done(self.seen), f"it ended with {self.seen}"
                self.seen += parse(frames.decode())
        return self.seen

    async def until_named(self, name: str, count: int = 1) -> list[Seen]:
        await self.until(lambda seen: len([each for each in seen if each.name == name]) >= count)
        return [each for each in self.seen if each.name == name]


@asynccontextmanager
async def hub_of(engine: Engine, **options: Any) -> AsyncIterator[Hub]:
    hub = Hub(engine, **{"window": 0.01, **options})
    try:
        yield hub
    finally:
        await hub.close()


async def listen(hub: Hub, feeds: frozenset[str] = BOTH, **options: Any) -> Listener:
    return Listener(await hub.join(feeds, **options))


def overdue(engine: Engine, clock: ManualClock, queue: str = "emails", n: int = 1, **fields: Any) -> None:
    """Let the leases of some messages run out and sweep: a reclaim."""
    engine.put(queue, [NewMessage(body=b"1", **fields) for _ in range(n)])
    engine.claim(queue, ClaimRequest(n=n))
    clock.advance("31s")
    engine.sweep(queue)  # after a silence nothing is reclaimed at first
    clock.advance("11s")
    assert engine.sweep(queue).reclaimed == n


# ---- What is told ---------------------------------------------------------------------------------


def test_a_reclaim_is_told_as_spec_3_says() -> None:
    async def story() -> None:
        clock = ManualClock()
        engine = MemoryEngine(clock)
        async with hub_of(engine) as hub:
            listener = await listen(hub, frozenset({OVERDUE}))
            overdue(engine, clock, n=3)
            (requeue,) = await listener.until_named("requeue")
            assert requeue.data == {
                "type": "requeue",
                "timestamp": clock(),
                "payload": {"count": 3, "dlq_count": 0, "triggered_by": "scheduler"},
            }

    asyncio.run(story())


def test_what_comes_together_is_told_together() -> None:
    def line(id: str, queue: str, count: int, dead: int) -> LogEntry:
        return LogEntry(
            id=id, at=int(id), queue=queue, event="requeue", count=count, info={"dlq_count": dead}
        )

    lines = [line("1", "a", 2, 1), line("2", "b", 1, 0), line("3", "a", 1, 1)]
    told = [each for each in told_of_log(lines, Redaction()) if each.feed == OVERDUE]
    assert [(each.queue, json.loads(each.data)) for each in told] == [
        (queue, {"type": "requeue", "timestamp": at, "payload": {**counts, "triggered_by": "scheduler"}})
        for queue, at, counts in (
            ("a", 3, {"count": 3, "dlq_count": 2}),
            ("b", 2, {"count": 1, "dlq_count": 0}),
        )
    ]


def test_a_death_is_told_as_spec_3_says() -> None:
    async def story() -> None:
        clock = ManualClock()
        engine = MemoryEngine(clock)
        async with hub_of(engine) as hub:
            listener = await listen(hub, frozenset({OVERDUE}))
            overdue(engine, clock, max_attempts=1)
            (death,) = await listener.until_named("move_to_dlq")
            assert death.data == {"type": "move_to_dlq", "timestamp": clock(), "payload": {"count": 1}}
            (requeue,) = await listener.until_named("requeue")
            assert requeue.data["payload"] == {"count": 0, "dlq_count": 1, "triggered_by": "scheduler"}

    asyncio.run(story())


def test_a_crowd_is_told_in_parts_and_each_in_order() -> None:
    """Between two parts the loop does what others ask for."""

    def event(number: int) -> Told:
        return Told(LIFECYCLE, "emails", 0, LIFECYCLE, b"%d" % number)

    async def story() -> None:
        async with hub_of(MemoryEngine()) as hub:
            hub._feeds[LIFECYCLE] = feed = Feed()  # opened, and without a reader: nothing comes but this
            feed.opened.set_result(None)
            crowd = [await listen(hub) for _ in range(2 * PART + 1)]
            elsewhere = await listen(hub, queues=frozenset({"other"}))
            for listener in (*crowd, elsewhere):
                await listener.until_named("hello")
            hub._hear(batch=[event(1)])
            hub._hear(batch=[event(2)])
            waiting = [0]
            while hub._telling:
                await asyncio.sleep(0)
                waiting.append(sum(len(each.client._frames) for each in crowd))
            parts = [after - before for before, after in itertools.pairwise(waiting)]
            assert sum(parts) == 2 * len(crowd)
            assert max(parts) <= PART
            for listener in crowd:
                assert [seen.data for seen in await listener.until_named("lifecycle", 2)] == [1, 2]
            assert not elsewhere.client._frames

    asyncio.run(story())


def test_a_client_hears_its_queues_and_feeds_only() -> None:
    async def story() -> None:
        engine = MemoryEngine()
        async with hub_of(engine) as hub:
            mine = await listen(hub, frozenset({LIFECYCLE}), queues=frozenset({"b"}))
            acts = await listen(hub, frozenset({"audit", "topic:orders"}))
            for queue in ("a", "b"):
                engine.pause(queue)
            audit.note(engine, "purge", "a", 3)
            engine.publish("orders", [b'{"n": 1, "pwd": 7}', b"\xff"])
            (line,) = await mine.until_named("lifecycle")
            assert (line.data["queue"], line.data["event"]) == ("b", "pause")
            (act,) = await acts.until_named("audit")
            assert (act.data["data"]["event"], act.data["data"]["count"]) == ("purge", 3)
            one, other = await acts.until_named("topic", 2)
            assert (one.data["data"], other.data["data"]) == ({"n": 1, "pwd": HIDDEN}, HIDDEN)
            assert not [each for each in acts.seen if each.name == "lifecycle"]

    asyncio.run(story())


def test_the_beginning_and_each_heartbeat_say_the_time_of_the_store() -> None:
    async def story() -> None:
        clock = ManualClock()
        async with hub_of(MemoryEngine(clock), heartbeat=0.01) as hub:
            listener = await listen(hub)
            (hello,) = await listener.until_named("hello")
            assert abs(hello.data["server_time"] - clock()) < PATIENCE * 1_000
            beats = await listener.until_named("heartbeat", 2)
            assert {beat.data["server_time"] for beat in beats} == {clock()}

    asyncio.run(story())


@pytest.mark.parametrize("text", ["everything", "topic:", "lifecycle,x", "topic:{a}"])
def test_an_unknown_feed_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_feeds(text)


def test_feeds_and_listeners_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with hub_of(MemoryEngine()) as hub:
            await listen(hub)
            with pytest.raises(InvalidInput, match="2 at most"):
                await listen(hub, frozenset({"topic:a", "topic:b", "topic:c"}))
            await listen(hub, frozenset({"topic:a", "topic:b"}))
            with pytest.raises(EngineUnavailable):
                await listen(hub)

    monkeypatch.setattr(stream, "MAX_TOPICS", 2)
    monkeypatch.setattr(stream, "MAX_CLIENTS", 2)
    asyncio.run(story())


def test_a_topic_that_nobody_listens_to_any_more_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else who may only look could ask for topics of any names until nobody else can follow one."""

    async def story() -> None:
        engine = MemoryEngine()
        async with hub_of(engine) as hub:
            for n in range(5):
                gone = await listen(hub, frozenset({f"topic:{n}"}))
                hub.leave(gone.client)
            stays = await listen(hub, frozenset({"topic:stays"}))
            comes = await listen(hub, frozenset({"topic:0"}))  # which had given way
            with pytest.raises(InvalidInput, match="2 at most"):
                await listen(hub, frozenset({"topic:more"}))
            acts = await listen(hub, frozenset({"audit"}))  # ours is there for everybody
            for topic in ("stays", "0", "1"):
                engine.publish(topic, [b'"%s"' % topic.encode()])
            audit.note(engine, "purge", "a", 3)
            assert [each.data["data"] for each in await stays.until_named("topic")] == ["stays"]
            assert [each.data["data"] for each in await comes.until_named("topic")] == ["0"]
            assert len(await acts.until_named("audit")) == 1
            assert hub._reader is not None
            assert {"topic:stays", "topic:0", "audit"} == set(hub._reader._feeds)

    monkeypatch.setattr(stream, "MAX_TOPICS", 2)
    asyncio.run(story())


# ---- Who comes back -------------------------------------------------------------------------------


def pauses(seen: list[Seen]) -> list[str]:
    return [each.data["queue"] for each in seen if each.name == "lifecycle"]


def test_who_comes_back_gets_what_was_missed_and_nothing_twice() -> None:
    async def story() -> None:
        engine = MemoryEngine()
        async with hub_of(engine) as hub:
            first, witness = await listen(hub), await listen(hub)
            engine.pause("a")
            (line,) = await first.until_named("lifecycle")
            hub.leave(first.client)
            for queue in ("b", "c"):
                engine.pause(queue)
            await witness.until_named("lifecycle", 3)
            again = await listen(hub, last_id=line.id)
            engine.pause("d")
            await again.until_named("lifecycle", 3)
            assert sorted(pauses(again.seen)) == ["b", "c", "d"]
            assert "reset" not in [each.name for each in again.seen]

    asyncio.run(story())


def test_another_server_makes_up_for_it_too() -> None:
    """Its reader was not there: what it did not see is in the logs."""

    async def story() -> None:
        clock = ManualClock()
        engine = MemoryEngine(clock)
        engine.pause("long ago")
        clock.advance("1h")
        async with hub_of(engine) as hub:
            first = await listen(hub)
            engine.pause("a")
            (line,) = await first.until_named("lifecycle")
        clock.advance("1m")
        engine.pause("b")
        async with hub_of(engine) as other:
            again = await listen(other, last_id=line.id)
            clock.advance("1m")
            engine.pause("c")
            await again.until(lambda seen: {"b", "c"} <= set(pauses(seen)))
            assert "long ago" not in pauses(again.seen)
            assert "reset" not in [each.name for each in again.seen]

    asyncio.run(story())


def test_what_is_no_longer_kept_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        clock = ManualClock()
        engine = MemoryEngine(clock)
        async with hub_of(engine) as hub:
            first = await listen(hub)
            engine.pause("first")
            (line,) = await first.until_named("lifecycle")
            for n in range(5):
                clock.advance("1m")
                engine.pause(f"queue {n}")
            await first.until_named("lifecycle", 6)
            again = await listen(hub, last_id=line.id)
            assert len(await again.until_named("reset")) == 1
            assert [each.name for each in again.seen[:2]] == ["hello", "reset"]
            nonsense = await listen(hub, last_id="nonsense")
            await nonsense.until_named("reset")

    monkeypatch.setattr(stream, "KEPT", 3)
    asyncio.run(story())


def test_an_outage_of_one_queue_loses_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MemoryEngine()
    for queue in ("a", "b"):
        engine.pause(queue)
    lifecycle = Lifecycle(engine, cursors={})
    whole = engine.log

    def broken(queue: str, *, after: str | None = None, limit: int = 100) -> Log:
        if queue == "b":
            raise EngineUnavailable
        return whole(queue, after=after, limit=limit)

    monkeypatch.setattr(engine, "log", broken)
    with pytest.raises(EngineUnavailable):
        lifecycle.read()
    monkeypatch.setattr(engine, "log", whole)
    assert [entry.queue for entry in lifecycle.read()] == ["a", "b"]


@pytest.mark.parametrize("entry", [b"[" * 60_000, b"\xff", b"{"], ids=["deep", "bytes", "half"])
def test_an_entry_that_nobody_can_read_ends_nothing(entry: bytes) -> None:
    """A topic takes whatever a program publishes; all who listen hang on one thread that reads it."""

    async def story() -> None:
        engine = MemoryEngine()
        async with hub_of(engine) as hub:
            listener = await listen(hub, frozenset({"topic:news", LIFECYCLE}))
            engine.publish("news", [entry, b"1"])
            told = await listener.until_named("topic", 2)
            assert [each.data["data"] for each in told] == [HIDDEN, 1]
            engine.pause("a")
            await listener.until_named("lifecycle")

    asyncio.run(story())


def test_a_large_entry_is_told_by_its_size() -> None:
    """5,000 of them are kept for who comes back: they must not be as large as a topic takes them."""

    async def story() -> None:
        engine = MemoryEngine()
        async with hub_of(engine) as hub:
            listener = await listen(hub, frozenset({"topic:news"}))
            engine.publish("news", [b'"' + b"x" * 2**19 + b'"'])
            (told,) = await listener.until_named("topic")
            assert told.data["data"] == "[524,290 bytes: read the topic]"

    asyncio.run(story())


def test_a_topic_is_read_in_parts_that_fit() -> None:
    engine = MemoryEngine()
    sizes = [1, 2, *([2**20] * 20), *([10] * 900)]
    for size in sizes:
        engine.publish("news", [b"x" * size])
    cursor, pages = "", list[list[int]]()
    while not pages or pages[-1]:
        page = read_topic(engine, "news", cursor, 1_000)
        pages.append([len(entry.data) for entry in page.entries])
        cursor = page.cursor
    assert [size for page in pages for size in page] == sizes
    assert all(sum(page) <= 16 * 2**20 for page in pages)
    assert len(pages) < 8
    assert len(read_topic(engine, "news", "", 5).entries) == 5
    assert read_topic(engine, "news", None, 5).entries == []


def test_a_fault_of_ours_is_no_end_of_all_events(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        engine = MemoryEngine()
        async with hub_of(engine, heartbeat=0.01) as hub:
            listener = await listen(hub)
            whole = engine.log

            def broken(queue: str, *, after: str | None = None, limit: int = 100) -> Log:
                raise ZeroDivisionError

            monkeypatch.setattr(engine, "log", broken)
            engine.pause("a")
            await listener.until_named("away")
            monkeypatch.setattr(engine, "log", whole)
            await listener.until_named("lifecycle")

    asyncio.run(story())


def test_a_store_that_was_away_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        engine = MemoryEngine()
        async with hub_of(engine, heartbeat=0.01) as hub:
            listener = await listen(hub)
            whole = engine.log

            def away(queue: str, *, after: str | None = None, limit: int = 100) -> Log:
                raise EngineUnavailable

            monkeypatch.setattr(engine, "log", away)
            engine.pause("a")
            await listener.until_named("away")
            engine.pause("b")
            monkeypatch.setattr(engine, "log", whole)
            await listener.until_named("lifecycle", 2)
            assert sorted(pauses(listener.seen)) == ["a", "b"]

    asyncio.run(story())


# ---- Who is slow ----------------------------------------------------------------------------------


def test_a_slow_client_is_dropped_with_a_notice_and_others_are_not() -> None:
    async def story() -> None:
        engine = MemoryEngine()
        async with hub_of(engine, waiting=10) as hub:
            slow, quick = await listen(hub, frozenset({LIFECYCLE})), await listen(hub, frozenset({LIFECYCLE}))
            for n in range(40):
                engine.pause(f"queue {n}")
                await quick.until_named("lifecycle", n + 1)
            assert not quick.client.ended
            assert slow.client.ended
            await slow.until_named("dropped")
            assert [each.name for each in slow.seen] == ["dropped"]
            assert await slow.client.next() == b""

    asyncio.run(story())


def test_a_client_that_takes_nothing_is_left() -> None:
    async def story() -> None:
        forever = asyncio.Event()

        async def receive() -> Any:
            await forever.wait()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                await forever.wait()

        async with hub_of(MemoryEngine()) as hub:
            response = EventStream(hub, await hub.join(BOTH), patience=0.01)
            scope: Any = {"type": "http"}
            await asyncio.wait_for(response(scope, receive, send), PATIENCE)
            assert len(hub) == 0

    asyncio.run(story())


def test_who_may_no_longer_listen_hears_nothing_more() -> None:
    async def story() -> list[Seen]:
        engine, sent = MemoryEngine(), list[bytes]()
        forever, rights = asyncio.Event(), [True]

        async def receive() -> Any:
            await forever.wait()

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))
            if b"hello" in sent[-1]:
                rights[0] = False
                engine.pause("secret")

        async def may() -> bool:
            return rights[0]

        async with hub_of(engine) as hub:
            response = EventStream(hub, await hub.join(BOTH), may, trusted=0.0)
            await asyncio.wait_for(response({"type": "http"}, receive, send), PATIENCE)  # type: ignore[arg-type]
            assert len(hub) == 0
        return list(parse(b"".join(sent).decode()))

    assert [each.name for each in asyncio.run(story())] == ["hello", "bye"]


def test_closing_sends_everybody_away() -> None:
    async def story() -> None:
        async with hub_of(MemoryEngine()) as hub:
            listener = await listen(hub)
        await listener.until_named("bye")
        assert await listener.client.next() == b""

    asyncio.run(story())


def test_one_reader_serves_all() -> None:
    async def story() -> None:
        engine = MemoryEngine()
        async with hub_of(engine) as hub:
            listeners = [await listen(hub) for _ in range(50)]
            reader = hub._reader
            engine.pause("a")
            for listener in listeners:
                await listener.until_named("lifecycle")
            assert hub._reader is reader
            assert len(hub) == 50

    asyncio.run(story())


# ---- Real servers ---------------------------------------------------------------------------------


@contextmanager
def serving(url: str, folder: Path) -> Iterator[str]:
    """The address of a process that serves the events of this store."""
    command = [sys.executable, "-m", "tests.http.listening", url]
    with (folder / "server.log").open("a") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        with process.stdout as out:
            address = out.readline().strip()
            assert address, (folder / "server.log").read_text()
            yield address
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
    assert "Traceback" not in (folder / "server.log").read_text()


def events_of(address: str, client: httpx.Client, **headers: str) -> Iterator[Seen]:
    with client.stream("GET", f"{address}/events", headers=headers, timeout=PATIENCE) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        block = ""
        for line in response.iter_lines():
            block += f"{line}\n"
            if not line:
                yield from parse(block)
                block = ""


def until(events: Iterator[Seen], done: Callable[[Seen], bool]) -> list[Seen]:
    """What came up to the first that is waited for; heartbeats keep it from hanging."""
    end, seen = time.monotonic() + PATIENCE, list[Seen]()
    for event in events:
        seen.append(event)
        if done(event):
            return seen
        assert time.monotonic() < end, f"it did not come: {seen}"
    raise AssertionError(f"it ended: {seen}")


def all_of(*wanted: Callable[[Seen], bool]) -> Callable[[Seen], bool]:
    """Done when each of these has come, in whatever order: none is promised between queues."""
    missing = list(wanted)

    def done(seen: Seen) -> bool:
        missing[:] = [each for each in missing if not each(seen)]
        return not missing

    return done


def is_pause_of(queue: str) -> Callable[[Seen], bool]:
    return lambda seen: seen.name == "lifecycle" and seen.data["queue"] == queue


def test_an_event_from_one_process_reaches_the_listeners_of_two_servers(tmp_path: Path) -> None:
    with servers.single() as redis, ExitStack() as stack:
        url = redis.url()
        room = stack.enter_context(postroom.open(url))
        room.queue("emails").put("1")
        client = stack.enter_context(httpx.Client())
        addresses = [stack.enter_context(serving(url, tmp_path)) for _ in range(2)]
        streams = [events_of(address, client) for address in addresses]
        for events in streams:
            until(events, lambda seen: seen.name == "heartbeat")

        room.engine.claim("emails", ClaimRequest(n=1, lease=50))
        servers.until(lambda: room.engine.sweep("emails").reclaimed, "it is not reclaimed")
        room.engine.pause("marker")
        for events in streams:
            seen = until(events, all_of(lambda seen: seen.name == "requeue", is_pause_of("marker")))
            requeues = [each.data["payload"] for each in seen if each.name == "requeue"]
            assert requeues == [{"count": 1, "dlq_count": 0, "triggered_by": "scheduler"}]
            events.close()  # type: ignore[attr-defined]  # it is a generator


def test_a_client_goes_on_at_another_server(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with postroom.open(url) as room, httpx.Client() as client:
        with serving(url, tmp_path) as address:
            events = events_of(address, client)
            until(events, lambda seen: seen.name == "heartbeat")
            room.engine.pause("a")
            last = until(events, is_pause_of("a"))[-1]
            events.close()  # type: ignore[attr-defined]  # it is a generator
        room.engine.pause("b")
        with serving(url, tmp_path) as address:
            events = events_of(address, client, **{"last-event-id": last.id})
            seen = until(events, is_pause_of("b"))
            assert "reset" not in [each.name for each in seen]
            events.close()  # type: ignore[attr-defined]  # it is a generator
