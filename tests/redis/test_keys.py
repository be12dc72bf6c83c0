"""Every key that a script touches is one that it was given: as a real server tells by MONITOR."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from postroom.engine import ClaimRequest
from postroom.engines.redis import scripts, urls
from postroom.engines.redis.client import Client, Script
from postroom.engines.redis.engine import RedisEngine
from postroom.model import Action, Failure, Leased, Move, NewMessage, Settlement, State, Verb
from postroom.policy import Policy, Rate
from postroom.testing import ManualClock
from tests.redis import servers

SHAS = {script.sha: script.name for script in vars(scripts).values() if isinstance(script, Script)}
#: Commands all of whose arguments are keys; of the others it is the first one, and TIME has none.
ONLY_KEYS = {"EXISTS", "UNLINK", "RENAME"}
END = "the end of what is watched"


@contextmanager
def monitored(server: servers.Server) -> Iterator[list[list[str]]]:
    """The commands of the block, each with who sent it in front: "lua" for a script."""
    lines: list[list[str]] = []
    with socket.create_connection((servers.HOST, server.port), servers.PATIENCE) as link:
        link.sendall(b"MONITOR\r\n")
        stream = link.makefile("r", encoding="latin-1", newline="\r\n")
        assert stream.readline() == "+OK\r\n"
        yield lines
        server.ask("ECHO", END)
        while END not in (line := stream.readline()):
            source = re.match(r"\+[\d.]+ \[\d+ (\S+)\]", line)
            assert source
            words = re.findall(r'"((?:[^"\\]|\\.)*)"', line[source.end() :])
            lines.append([source[1], words[0].upper(), *words[1:]])


def keys_of(command: str, args: list[str]) -> set[str]:
    if command == "TIME":
        return set()
    return set(args) if command in ONLY_KEYS else {args[0]}


def undeclared(lines: list[list[str]]) -> list[tuple[str, str, set[str]]]:
    """The script, the command and the keys of whatever was touched without having been given."""
    found, given, name = [], set[str](), ""
    for source, command, *args in lines:
        if command in ("EVALSHA", "EVAL"):
            given = set(args[2 : 2 + int(args[1])])
            name = SHAS.get(args[0], name)
        elif source == "lua" and (more := keys_of(command, args) - given):
            found.append((name, command, more))
    return found


def claim(engine: RedisEngine, n: int = 1) -> list[Leased]:
    return engine.claim("q", ClaimRequest(n=n)).deliveries


def use_every_script(engine: RedisEngine, clock: ManualClock) -> None:
    engine.declare(
        "q", Policy(dedupe_window="1h", keep_done="1h", dead_limit=3, rate="1000/s", max_in_flight=50)
    )
    with engine.waiter(["q"], ["news"]) as waiter:
        waiter.arm()
        engine.claim("q", ClaimRequest(waiter=waiter))
    engine.put("q", [NewMessage()])
    engine.put("q", [NewMessage(unique_key="only", ttl=60_000), NewMessage(delay=1_000, priority=9)])
    engine.put("q", [NewMessage(failure=Failure(type="Old")) for _ in range(4)])
    first, second = claim(engine, 2)
    engine.renew("q", [first.receipt], 1_000)
    engine.extend("q", [second.receipt], checkpoint=b"half")
    engine.turn("q", [Settlement(first.receipt)], [second.receipt], ClaimRequest(start=0))
    engine.settle("q", [Settlement(second.receipt, Verb.RETRY, delay=10)])
    clock.advance("2m")
    while engine.sweep("q").full:
        pass
    (third,) = claim(engine)
    engine.settle("q", [Settlement(third.receipt, Verb.BURY)])
    use_what_operators_use(engine, third.message.id)
    use_records_and_topics(engine)


def use_what_operators_use(engine: RedisEngine, dead: str) -> None:
    engine.move("q", [Move(id=dead, action=Action.REPLAY, number=1)])
    (new,) = engine.put("q", [NewMessage(delay=60_000)]).puts
    engine.move("q", [Move(id=new.id, action=Action.RESCHEDULE, delay=1_000)])
    engine.move("q", [Move(id=new.id, action=Action.CANCEL), Move(id=dead, action=Action.DISCARD)])
    for state in State:
        engine.find("q", state)
    group = engine.groups("q")[0].fingerprint
    engine.find("q", State.DEAD, group=group)
    engine.tally("q", State.DEAD, [0, 1], group=group)
    engine.tally("q", State.SCHEDULED, [0, 1])
    engine.backlog("q")
    engine.get("q", [new.id, dead])
    engine.stored("q", new.id)
    engine.log("q", after="")
    engine.stats("q")
    engine.pause("q")
    engine.resume("q")
    engine.ring(["q"])
    engine.put("q", [NewMessage() for _ in range(150)])
    engine.purge("q")
    engine.drop("q", force=True)


def use_records_and_topics(engine: RedisEngine) -> None:
    engine.publish("news", [b"1", b"2"])
    engine.read("news", after="")
    version = engine.records.put("lock", "key", b"value", ttl=1_000)
    engine.records.put("note", "key", b"value")
    engine.records.get("lock", "key")
    engine.records.list("lock")
    engine.records.delete("lock", "key", expect=version)
    engine.records.take("bucket", "key", 1, rate=Rate.parse("5/s"), burst=3)


def nudge(engine: RedisEngine, server: servers.Server) -> None:
    """Somebody who waits already, for queues that nobody has rung, begins to wait for more."""

    def listens() -> bool:
        # By its flag, too: the last command of a connection that does nothing is named there as well.
        return any(
            b" flags=b " in line and b" cmd=blpop " in line
            for line in server.ask("CLIENT", "LIST").splitlines()
        )

    with engine.waiter(["quiet-1"]) as one, engine.waiter(["quiet-2"]) as other:
        one.arm()
        servers.until(listens, "nobody listens")
        other.arm()


def test_no_script_touches_a_key_that_it_was_not_given(server: servers.Server) -> None:
    clock = ManualClock()
    engine = RedisEngine(Client(urls.read(urlsplit(server.url(**servers.PATIENT)))), "test", clock)
    try:
        with monitored(server) as lines:
            use_every_script(engine, clock)
            nudge(engine, server)
    finally:
        engine.close()
    assert {SHAS[args[0]] for _, command, *args in lines if command == "EVALSHA"} == set(SHAS.values())
    assert sum(source == "lua" for source, *_ in lines) > 500
    assert undeclared(lines) == []
