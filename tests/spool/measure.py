"""How long a switch takes, against a real Redis: `python -m tests.spool.measure`."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from postroom.engines.spool.errands import Errands
from postroom.model import NewMessage
from tests.redis import servers
from tests.redis.servers import Server
from tests.spool.stage import await_back, await_moved, put
from tests.spool.test_redis import AOF, spooled


def took(call: Callable[[], object], times: int = 1) -> float:
    """Milliseconds for one of so many calls."""
    began = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - began) / times * 1_000


def outage(name: str, begin: Callable[[Server], None], end: Callable[[Server], None]) -> None:
    with (
        servers.single(AOF) as server,
        tempfile.TemporaryDirectory() as folder,
        spooled(server, Path(folder)) as engine,
    ):
        put(engine)
        begin(server)
        first = took(lambda: put(engine))
        spooled_put = took(lambda: put(engine), 200)
        end(server)
        back = took(lambda: await_back(engine))
        print(f"{name}: first put {first:.1f} ms, others {spooled_put:.2f} ms, back after {back:.0f} ms")


def backlog(count: int) -> None:
    with (
        servers.single(AOF) as server,
        tempfile.TemporaryDirectory() as folder,
        spooled(server, Path(folder)) as engine,
    ):
        server.kill()
        for _ in range(count // 1_000):
            engine.put("q", [NewMessage(body=bytes(200)) for _ in range(1_000)])
        server.restart()
        moved = took(lambda: await_moved(engine)) / 1_000
        print(f"{count:,} messages moved in {moved:.1f} s: {count / moved:,.0f}/s")


def main() -> None:
    logging.disable(logging.CRITICAL)
    errands = Errands(2.0)
    print(f"an errand: {took(lambda: errands.run(int), 5_000) * 1_000:.0f} µs")
    outage("kill -9", Server.kill, Server.restart)
    outage("SIGSTOP", Server.freeze, Server.thaw)
    backlog(20_000)


if __name__ == "__main__":
    main()
