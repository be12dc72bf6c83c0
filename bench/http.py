"""The server: what it takes in, how soon who waits is woken, and a thousand listeners beside the others.

A real `postroom serve` in a process of its own, as it is started by default, with its log and its keeper.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.lines import Line, asking
from bench.measure import Case, percentile
from bench.stage import BODY, Stage, fill, queue_at

_CONNECTIONS = 16
_BATCH, _BATCH_CONNECTIONS = 500, 4
#: Between two messages for who waits (seconds): long enough to be idle again.
_SPACING = 0.01
#: Who hears nothing for so long hears no more (seconds).
_PATIENCE = 20.0
_EVENT = b"event: lifecycle\n"


class Served(NamedTuple):
    port: int
    pid: int

    def memory(self) -> float:
        """What it has in memory (MB)."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found
        return int(found[1]) / 1_024


@contextmanager
def served(url: str) -> Iterator[Served]:
    command = [sys.executable, "-m", "postroom.cli", "serve", "--url", url, "--port", "0"]
    # A session of its own: Ctrl-C is for this process, which then ends the other.
    with subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "--", *command],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout
            found = re.search(r":(\d+)$", process.stdout.readline().strip())
            if not found:
                raise RuntimeError("the server did not start")
            yield Served(int(found[1]), process.pid)
        finally:
            process.kill()


def cases(stage: Stage) -> list[Case]:
    if not stage.kind.durable:  # the figures are those of the embedded store
        return []
    return [_put(stage), _batch(stage), _wake(stage), _listeners(stage), _deep(stage)]


# ---- Taking in --------------------------------------------------------------------------------------


def _put(stage: Stage) -> Case:
    count = stage.size(6_000, 200)
    one = asking("POST", "/queues/bench/messages", {"body": BODY})

    def trial() -> list[float]:
        with stage.url() as url, served(url) as server:
            asyncio.run(_all(server, one, 200, _CONNECTIONS))  # not measured: everything is new to it
            return [count / asyncio.run(_all(server, one, count, _CONNECTIONS))]

    name = f"HTTP: put, {_CONNECTIONS} connections"
    return Case(name, (stage.figure(name, "/s"),), trial)


def _batch(stage: Stage) -> Case:
    calls = stage.size(120, 16)
    many = asking("POST", "/queues/bench/messages/batch", {"messages": [{"body": BODY}] * _BATCH})

    def trial() -> list[float]:
        with stage.url() as url, served(url) as server:
            asyncio.run(_all(server, many, _BATCH_CONNECTIONS, _BATCH_CONNECTIONS))
            return [calls * _BATCH / asyncio.run(_all(server, many, calls, _BATCH_CONNECTIONS))]

    name = f"HTTP: put {_BATCH} a call, {_BATCH_CONNECTIONS} connections"
    return Case(name, (stage.figure(name, "/s"),), trial)


async def _all(server: Served, request: bytes, count: int, connections: int) -> float:
    """Seconds for so many of these requests."""
    left = count

    async def ask(line: Line) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await line.ask(request)

    async with AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(Line(server.port)) for _ in range(connections)]
        began = time.perf_counter()
        await asyncio.gather(*map(ask, lines))
        return time.perf_counter() - began


# ---- Waking -----------------------------------------------------------------------------------------


def _wake(stage: Stage) -> Case:
    samples = stage.size(300, 20)

    def trial() -> list[float]:
        with stage.url() as url, served(url) as server:
            waits = asyncio.run(_waits(server, samples))
        return [percentile(waits, 50), percentile(waits, 99)]

    names = "HTTP: a waiting claim is answered p50", "HTTP: a waiting claim is answered p99"
    return Case("HTTP: wake", tuple(stage.figure(name, "ms") for name in names), trial)


async def _waits(server: Served, count: int) -> list[float]:
    """Milliseconds from a put's first byte to the last one of the answer to who waited."""
    claim = asking("POST", "/queues/bench/claim", {"wait": 30})
    put = asking("POST", "/queues/bench/messages", {"body": BODY})
    waits = []
    async with Line(server.port) as producer, Line(server.port) as consumer:
        for _ in range(count):
            consumer.send(claim)
            await asyncio.sleep(_SPACING)
            began = time.perf_counter()
            producer.send(put)
            (delivery,) = json.loads(await consumer.answer())["deliveries"]
            waits.append((time.perf_counter() - began) * 1_000)
            await producer.answer()
            await consumer.ask(asking("POST", f"/deliveries/{delivery['receipt']}/ack"))
    return waits


# ---- Listeners --------------------------------------------------------------------------------------


def _listeners(stage: Stage) -> Case:
    listeners = stage.size(1_000, 20)
    changes = stage.size(100, 10)  # every listener is told of so many pauses and resumes

    def trial() -> list[float]:
        with stage.url() as url, served(url) as server:
            return asyncio.run(_told(server, listeners, changes))

    name = f"HTTP: {listeners:,} listeners"
    figures = (
        stage.figure(f"{name}: events missed", "", summary=max),
        stage.figure(f"{name}: stats beside them p99", "ms"),
        stage.figure(f"{name}: memory of the server", "MB"),
    )
    return Case(name, figures, trial)


async def _told(server: Served, count: int, changes: int) -> list[float]:
    """Events that did not reach somebody, the p99 of what others wait for, and the memory of the server."""
    listen = asking("GET", "/events?topics=lifecycle", None, "Accept: text/event-stream")
    async with AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(Line(server.port)) for _ in range(count)]
        for line in lines:
            line.send(listen)
            await line.reader.readuntil(b"event: hello\n")
        listening = [asyncio.create_task(_heard(line, changes)) for line in lines]
        waits = await _changed(server, changes)
        heard = await asyncio.gather(*listening)
        memory = server.memory()
    return [float(sum(max(0, changes - each) for each in heard)), percentile(waits, 99), memory]


async def _heard(line: Line, changes: int) -> int:
    """How many events come, until all did or nothing comes any more."""
    heard, rest = 0, b""
    try:
        while heard < changes:
            rest += await asyncio.wait_for(line.reader.read(65_536), _PATIENCE)
            heard += rest.count(_EVENT)
            rest = rest[rest.rfind(b"\n") + 1 :]
    except TimeoutError:
        return heard
    return heard


async def _changed(server: Served, changes: int) -> list[float]:
    """Pause and resume a queue; milliseconds that its numbers take in between."""
    stats, waits = asking("GET", "/queues/bench/stats"), []
    async with Line(server.port) as operator, Line(server.port) as other:
        await operator.ask(asking("PUT", "/queues/bench", {}))
        for number in range(changes):
            verb = "resume" if number % 2 else "pause"
            await operator.ask(asking("POST", f"/queues/bench/{verb}"))
            for _ in range(3):
                began = time.perf_counter()
                await other.ask(stats)
                waits.append((time.perf_counter() - began) * 1_000)
                await asyncio.sleep(_SPACING)
    return waits


# ---- Depth ------------------------------------------------------------------------------------------


def _deep(stage: Stage) -> Case:
    depth, asks = stage.size(1_000_000, 50_000), stage.size(500, 100)
    short = f"{depth // 1_000_000} M" if depth >= 1_000_000 else f"{depth // 1_000} k"
    store = _Deep(stage, depth)

    def trial() -> list[float]:
        with served(store.url()) as server:
            return [percentile(asyncio.run(_looks(server, store.queue, asks)), 99)]

    name = f"HTTP: stats with {short} waiting p99"
    return Case(name, (stage.figure(name, "ms"),), trial, prepare=store.url)


class _Deep:
    """A store with a queue of that depth, filled when it is first asked for."""

    def __init__(self, stage: Stage, depth: int) -> None:
        self._stage, self._depth = stage, depth
        self._url = self.queue = ""

    def url(self) -> str:
        if not self._url:
            with ExitStack() as making:
                url = making.enter_context(self._stage.url())
                with queue_at(url) as queue:
                    self._stage.say(f"for the server: putting {self._depth:,} messages")
                    fill(queue, self._depth, self._stage.say)
                    self.queue = queue.name
                self._stage.kept.push(making.pop_all())
                self._url = url
        return self._url


async def _looks(server: Served, queue: str, count: int) -> list[float]:
    """Milliseconds that the numbers of a queue take, one question after the other."""
    stats, waits = asking("GET", f"/queues/{queue}/stats"), []
    async with Line(server.port) as line:
        for _ in range(count):
            began = time.perf_counter()
            await line.ask(stats)
            waits.append((time.perf_counter() - began) * 1_000)
    return waits
