"""The scripts themselves: what they may touch, what they cost, and what only they can get wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

import postroom
from postroom.engine import ClaimRequest
from postroom.engines.redis import scripts, urls
from postroom.engines.redis.client import Client, Script
from postroom.engines.redis.engine import RedisEngine
from postroom.engines.redis.packing import draft
from postroom.engines.redis.pool import Link
from postroom.errors import QueueFull, StoreTooNew
from postroom.model import Action, Failure, Leased, Move, NewMessage, Outcome, Settlement, State, Verb
from postroom.policy import Policy
from postroom.testing import ManualClock
from tests.redis import servers

LUA = Path(scripts.__file__).parent / "lua"
SCRIPTS = [script for script in vars(scripts).values() if isinstance(script, Script)]

Maker = Callable[..., RedisEngine]


@pytest.fixture
def make(server: servers.Server) -> Iterator[Maker]:
    """Open engines on a server without data; they are closed after the test."""
    made: list[RedisEngine] = []

    def engine(clock: ManualClock | None = None) -> RedisEngine:
        made.append(RedisEngine(Client(urls.read(urlsplit(server.url(**servers.PATIENT)))), "test", clock))
        return made[-1]

    yield engine
    for each in made:
        each.close()


@pytest.fixture
def engine(make: Maker) -> RedisEngine:
    return make()


def put(engine: RedisEngine, count: int, **fields: object) -> list[str]:
    messages = [NewMessage(**fields) for _ in range(count)]  # type: ignore[arg-type]  # whatever the test says
    return [each.id for each in engine.put("q", messages).puts]


def claim(engine: RedisEngine, n: int = 1_000) -> list[Leased]:
    return engine.claim("q", ClaimRequest(n=n)).deliveries


def found(engine: RedisEngine, state: State, limit: int) -> list[str]:
    ids, cursor = list[str](), None
    while True:
        page = engine.find("q", state, cursor=cursor, limit=limit)
        ids += [entry.id for entry in page.entries]
        cursor = page.cursor
        if cursor is None:
            return ids


# ---- How they are written ------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(LUA.glob("*.lua")), ids=lambda path: path.stem)
def test_every_file_says_what_it_is_for(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("-- ")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_no_script_makes_up_a_key_or_joins_a_number_to_text(script: Script) -> None:
    keys = re.findall(r"call\('[A-Z]+', *([^,)]+)", script.text)
    assert not [key for key in keys if ".." in key or key.startswith(("'", '"'))]
    assert not re.search(r"\.\.\s*(now|seq|order|score|due)\b", script.text)


def test_only_what_adds_messages_is_refused_at_the_memory_limit() -> None:
    refused = {script.name for script in SCRIPTS if script.text.startswith("#!lua\n")}
    assert refused == {"put", "put_one", "replay", "publish", "record_add"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_header_says_what_a_script_takes_and_returns(script: Script) -> None:
    """Of a queue's scripts books.lua says which keys they take, of those of records record.lua."""
    files = {"replay": "move", "announce": "publish", "record_add": "record_put"}
    text = (LUA / f"{files.get(script.name, script.name)}.lua").read_text(encoding="utf-8")
    header = "".join(re.findall(r"\A(?:--[^\n]*\n)+", text))
    assert "Returns" in header
    shared = any(part in script.text for part in ("local META, READY", "local VALUES, NAMES"))
    assert shared or "KEYS" in header
    taken = {int(number) for number in re.findall(r"ARGV\[(\d+)\]", text)} - ({1, 2} if shared else set())
    told = {int(number) for number in re.findall(r"\[(\d+)…?\]", header)}
    assert taken <= told


# ---- What they cost ------------------------------------------------------------------------------


def test_a_plain_message_has_a_small_head() -> None:
    _, head, rest = draft(NewMessage(body=b"x" * 200))
    assert len(head) + 10 <= 52
    assert rest == b"x" * 200


def test_a_waiting_message_of_200_bytes_takes_460_at_most(
    engine: RedisEngine, server: servers.Server
) -> None:
    def used() -> int:
        found = re.search(rb"used_memory:(\d+)", server.ask("INFO", "memory"))
        assert found
        return int(found[1])

    put(engine, 1_000, body=b"x" * 200)
    before = used()
    for _ in range(20):
        put(engine, 1_000, body=b"x" * 200)
    assert (used() - before) / 20_000 <= 460


# ---- Memory --------------------------------------------------------------------------------------


def test_a_full_server_refuses_puts_and_drains_to_empty(engine: RedisEngine, server: servers.Server) -> None:
    count = 3_000
    for _ in range(count // 1_000):
        put(engine, 1_000, body=b"x" * 500)
    server.ask("CONFIG", "SET", "maxmemory", "1mb")
    try:
        with pytest.raises(QueueFull) as refused:
            put(engine, 1)
        assert refused.value.reason == "memory"
        deliveries = claim(engine, 2)
        assert engine.extend("q", [deliveries[0].receipt], checkpoint=b"half") == [Outcome.OK]
        engine.settle("q", [Settlement(deliveries[0].receipt, Verb.RETRY)])
        engine.settle("q", [Settlement(deliveries[1].receipt, Verb.BURY)])
        assert engine.move("q", [Move(id=deliveries[1].message.id, action=Action.DISCARD)])[0].ok
        drained, settlements = 1, list[Settlement]()
        while batch := engine.turn("q", settlements, (), ClaimRequest(n=500)).claimed.deliveries:
            drained += len(batch)
            settlements = [Settlement(delivery.receipt) for delivery in batch]
        assert (drained, engine.stats("q").depth) == (count, 0)
    finally:
        server.ask("CONFIG", "SET", "maxmemory", "0")


def test_a_worker_that_starts_on_a_full_server_drains_it(engine: RedisEngine, server: servers.Server) -> None:
    """It declares its queues, tells that it is there, and has a keeper; operators pause and resume."""
    put(engine, 200, body=b"x" * 500)
    server.ask("CONFIG", "SET", "maxmemory", "1mb")
    try:
        with postroom.open(server.url(prefix="test")) as room:
            queue = room.queue("q", Policy(max_attempts=7))
            queue.pause("let us see")
            queue.resume()
            with pytest.raises(QueueFull):
                queue.put("x")
            with postroom.Worker(room, {"q": lambda delivery: None}, concurrency=4):
                servers.until(lambda: queue.stats().counters["acked"] == 200, "it does not drain")
            assert [info.policy.max_attempts for info in room.queues()] == [7]
            assert (queue.stats().depth, queue.stats().processing) == (0, 0)
    finally:
        server.ask("CONFIG", "SET", "maxmemory", "0")


def test_how_full_a_server_is(engine: RedisEngine, server: servers.Server) -> None:
    before = engine.memory()
    assert before
    assert before.maxmemory is None
    put(engine, 1_000, body=b"x" * 1_000)
    server.ask("CONFIG", "SET", "maxmemory", "100mb")
    try:
        after = engine.memory()
    finally:
        server.ask("CONFIG", "SET", "maxmemory", "0")
    assert after
    assert after.used > before.used + 1_000_000
    assert after.maxmemory == 100 * 2**20


# ---- Time ----------------------------------------------------------------------------------------


def test_without_a_clock_the_time_is_the_servers(engine: RedisEngine, server: servers.Server) -> None:
    (id,) = put(engine, 1)
    entry = engine.get("q", [id])[0]
    assert entry
    seconds, _ = server.ask("TIME")
    assert abs(entry.message.put_at - int(seconds) * 1_000) < 5_000


def test_a_time_that_is_a_little_ahead_holds_and_one_far_ahead_was_wrong(make: Maker) -> None:
    clock = ManualClock()
    ahead = make(ManualClock(clock() + 30_000))
    put(ahead, 1)
    behind = make(clock)
    (id,) = put(behind, 1)
    entry = behind.get("q", [id])[0]
    assert entry
    assert entry.message.put_at == clock() + 30_000

    wrong = make(ManualClock(clock() + 10 * 60_000))
    wrong.renew("q", [], 1_000)
    later = make(ManualClock(clock() + 31_000))
    for _ in range(2):  # and it is forgotten at once
        entry = behind.get("q", put(later, 1))[0]
        assert entry
        assert entry.message.put_at == clock() + 31_000
    assert later._client.command("HGET", later._names.queue("q")[0], "called") == b"%d" % (clock() + 31_000)


# ---- Pages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 7, 50])
def test_scheduled_messages_of_one_moment_and_many_levels_are_paged_by_id(make: Maker, limit: int) -> None:
    clock = ManualClock()
    engine = make(clock)
    due = clock() + 60_000
    ids = [put(engine, 1, due=due + number % 2, priority=number % 5)[0] for number in range(40)]
    first, second = sorted(ids[::2]), sorted(ids[1::2])
    assert found(engine, State.SCHEDULED, limit) == first + second


def test_a_page_goes_on_behind_a_message_that_is_gone(make: Maker) -> None:
    clock = ManualClock()
    engine = make(clock)
    put(engine, 20, delay=1_000)
    clock.advance("1s")
    engine.sweep("q")  # all at the same place now
    page = engine.find("q", State.READY, limit=7)
    for entry in page.entries:
        engine.move("q", [Move(id=entry.id, action=Action.CANCEL)])
    rest = engine.find("q", State.READY, cursor=page.cursor, limit=20)
    assert len({entry.id for entry in rest.entries} - {entry.id for entry in page.entries}) == 13


def test_a_narrow_search_looks_at_a_thousand_dead_letters_a_call(make: Maker) -> None:
    clock = ManualClock()
    engine = make(clock)
    for _ in range(3):
        put(engine, 1_000, failure=Failure(type="Common"))
    clock.advance("1s")
    (id,) = put(engine, 1, failure=Failure(type="Rare"), correlation_id="task-1")
    pages, cursor = list[list[str]](), None
    while not pages or cursor:
        page = engine.find("q", State.DEAD, cursor=cursor, correlation_id="task-1")
        pages.append([each.id for each in page.entries])
        cursor = page.cursor
    assert pages == [[], [], [], [id]]
    # A group is kept together: nothing else is looked at.
    entry = engine.get("q", [id])[0]
    assert entry
    assert entry.failure
    page = engine.find("q", State.DEAD, group=entry.failure.fingerprint)
    assert ([each.id for each in page.entries], page.cursor) == ([id], None)


def test_large_messages_are_shown_in_portions(engine: RedisEngine) -> None:
    ids = [put(engine, 1, body=bytes(3 * 2**20))[0] for _ in range(3)]
    assert [entry and len(entry.message.body) for entry in engine.get("q", ids)] == [3 * 2**20] * 3
    assert len(engine.find("q", State.READY).entries) == 1


# ---- Bounds --------------------------------------------------------------------------------------


def calls(server: servers.Server, command: str) -> int:
    """How often it was called since the last `CONFIG RESETSTAT`, by scripts too."""
    found = re.search(rf"cmdstat_{command}:calls=(\d+)", server.ask("INFO", "commandstats").decode())
    return int(found[1]) if found else 0


def test_entries_that_are_too_old_go_by_few_commands(make: Maker, server: servers.Server) -> None:
    clock = ManualClock()
    engine = make(clock)
    for first in range(0, 3_000, 100):
        engine.publish("news", [b"%d" % number for number in range(first, first + 100)])
        clock.advance("1m")
    cursor = engine.read("news", after="", limit=1).cursor
    clock.advance("23h")
    clock.advance("55m")  # what was published in the last five minutes is young enough
    server.ask("CONFIG", "RESETSTAT")
    engine.publish("news", [b"new"])
    assert calls(server, "xrange") + calls(server, "xdel") < 20
    page = engine.read("news", after=cursor, limit=1_000)
    young = [b"%d" % number for number in range(2_600, 3_000)]
    assert ([entry.data for entry in page.entries], page.missed) == ([*young, b"new"], 2_599)


def test_a_list_of_records_looks_at_a_thousand_a_call(make: Maker, server: servers.Server) -> None:
    """Else those whose time is over would hold everybody up."""
    clock = ManualClock()
    engine = make(clock)
    for number in range(2_500):
        engine.records.put("kind", f"{number:04}", b"over", ttl=60_000 if number % 100 else None)
    clock.advance("1h")
    server.ask("CONFIG", "RESETSTAT")
    assert [record.key for record in engine.records.list("kind")] == [f"{n:04}" for n in range(0, 2_500, 100)]
    assert (calls(server, "evalsha") + calls(server, "eval"), calls(server, "hget")) == (4, 2_500)
    assert [record.key for record in engine.records.list("kind", after="1000", limit=2)] == ["1100", "1200"]


def test_a_list_of_large_records_comes_in_portions(engine: RedisEngine, server: servers.Server) -> None:
    for number in range(100):
        engine.records.put("kind", f"{number:02}", bytes(64 * 2**10))
    engine.records.list("kind", limit=1)  # the script is there now
    server.ask("CONFIG", "RESETSTAT")
    assert len(engine.records.list("kind", limit=100)) == 100
    assert calls(server, "evalsha") == 2


def test_a_purge_is_cleaned_up_behind_a_hundred_a_call(engine: RedisEngine) -> None:
    put(engine, 1, failure=Failure(type="E"))
    put(engine, 250)
    keys = engine._names.queue("q")
    left = list[int]()
    engine._client.run(scripts.PURGE, keys, ("", 0))
    while engine._client.run(scripts.CLEAN, keys, ("", 0)):
        left.append(engine._client.command("HLEN", keys[6]))
    assert left == [151, 51, 1]


# ---- Purge ---------------------------------------------------------------------------------------


def test_what_a_purge_left_behind_does_not_exist_and_is_cleaned_by_sweeps(engine: RedisEngine) -> None:
    put(engine, 1, failure=Failure(type="E"))
    ids = put(engine, 800) + put(engine, 700)
    unique = put(engine, 1, unique_key="user:4", delay=1_000)
    keys = engine._names.queue("q")
    engine._client.run(scripts.PURGE, keys, ("", 0))  # as by a process that died before it cleaned up
    assert engine.get("q", [ids[0], *unique]) == [None, None]
    assert engine.put("q", [NewMessage(id=ids[0], body=b"again")]).puts[0].created
    assert engine.put("q", [NewMessage(unique_key="user:4")]).puts[0].created
    while engine.sweep("q").full:
        pass
    assert engine._client.command("HLEN", keys[6]) == 3
    assert [delivery.message.body for delivery in claim(engine)] == [b"again", b""]


def test_a_second_purge_waits_for_the_trash_of_the_first(engine: RedisEngine) -> None:
    put(engine, 1, failure=Failure(type="E"))
    put(engine, 600, delay=1_000)
    put(engine, 600)
    engine._client.run(scripts.PURGE, engine._names.queue("q"), ("", 0))
    put(engine, 5)
    assert engine.purge("q") == 5
    assert engine._client.command("HLEN", engine._names.queue("q")[6]) == 1


def test_a_drop_leaves_no_key_behind(engine: RedisEngine, server: servers.Server) -> None:
    engine.declare("q", Policy(keep_done="1h", dedupe_window="1h"))
    put(engine, 10, ttl=60_000)
    put(engine, 1, unique_key="user:4", delay=1_000)
    done, retried, buried, *_ = claim(engine)
    engine.extend("q", [retried.receipt], checkpoint=b"half")
    engine.settle("q", [Settlement(done.receipt), Settlement(retried.receipt, Verb.RETRY)])
    engine.settle("q", [Settlement(buried.receipt, Verb.BURY)])
    engine.drop("q", force=True)
    assert [key for key in server.ask("KEYS", "*") if b"{q}" in key] == []


# ---- Names and queues ----------------------------------------------------------------------------


def test_many_queues_are_asked_for_in_one_round_trip(
    engine: RedisEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"q{number:04}" for number in range(1_200)]
    for name in names:
        engine.put(name, [NewMessage()])
    engine.pause("q0007", "wait")
    sent, ask = list[int](), Link.ask

    def counted(link: Link, packed: bytes, *, answers: int = 1) -> Any:
        sent.append(answers)
        return ask(link, packed, answers=answers)

    monkeypatch.setattr(Link, "ask", counted)
    found = engine.queues()
    assert sent == [1, 1_000, 200]  # the names, and two portions
    assert [info.name for info in found] == names
    assert [(info.name, info.pause_reason) for info in found if info.paused] == [("q0007", "wait")]
    assert [info.name for info in engine.queues(["none", "q0001", "{no name}"])] == ["q0001"]


def test_a_name_whose_queue_was_never_made_is_not_listed(engine: RedisEngine) -> None:
    engine._register("only a name")
    assert engine.queues() == []


def test_what_a_newer_release_has_written_is_left_alone(engine: RedisEngine) -> None:
    put(engine, 1)
    meta = engine._names.queue("q")[0]
    numbers = msgspec.msgpack.decode(engine._client.command("HGET", meta, "numbers"))
    engine._client.command("HSET", meta, "numbers", msgspec.msgpack.encode(numbers | {"format": 2}))
    for call in (lambda: claim(engine), lambda: put(engine, 1), lambda: engine.stats("q")):
        with pytest.raises(StoreTooNew):
            call()


def test_scripts_that_were_flushed_are_loaded_again(engine: RedisEngine, server: servers.Server) -> None:
    put(engine, 1)
    server.ask("SCRIPT", "FLUSH")
    assert len(claim(engine)) == 1
