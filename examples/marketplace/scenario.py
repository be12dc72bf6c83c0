"""The scenario: put a day's work and its poison, let the roles work, kill some of them, and judge."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import postroom
from examples.marketplace import cases, judge, outside
from examples.marketplace.payouts import Payouts
from examples.marketplace.repair import repair
from examples.marketplace.workers import Workers
from postroom.config import load
from postroom.room import Room
from postroom.schedule import Schedules

MATRIX = Path(__file__).with_name("postroom.toml")
#: All of it may take so long (seconds); it ends as soon as everything is settled.
PATIENCE = 180.0


def hurried(folder: Path, *, tick: str = "1s") -> Path:
    """The matrix in a hurry, else unchanged: waits between attempts a thousand times shorter, a tick every
    second or so instead of every five minutes, a dead worker's payouts back after 5 seconds instead of 30.
    """
    file, text = folder / "postroom.toml", MATRIX.read_text(encoding="utf-8")
    text = re.sub(r'(backoff = ".*\d)s"', r'\1ms"', text)
    text = text.replace('every = "5m"', f'every = "{tick}"')
    text = text.replace('visibility_timeout = "15m"', 'visibility_timeout = "15m"\nlease = "5s"')
    file.write_text(text, encoding="utf-8")
    return file


def nobody_looks(room: Room, workers: Workers) -> list[str]:
    return []


def play(
    url: str,
    folder: Path,
    *,
    each: int = 20,
    kills: int = 3,
    say: Callable[[str], None] = print,
    look: Callable[[Room, Workers], list[str]] = nobody_looks,
) -> list[str]:
    """Play it in this store, with the notes in this folder; everything that is not as it has to be.

    Somebody may `look` before anything is replayed, and find something wrong.
    """
    file, notes, payouts = hurried(folder), folder / "notes", Payouts(folder)
    config = load(file, url=url)
    with payouts.open(), postroom.open(config=config) as room:
        put = cases.put_all(room, cases.late())
        until(lambda: room.engine.sweep("chat_events").expired or None, "the late message expires")
        put |= cases.put_all(room, cases.everyday(config, each))
        say(f"put {len(put)} messages into {len(config.declared)} queues")
        with Workers(config.roles, url, file, notes, environ=payouts.environ) as workers:
            say(f"started {len(config.roles)} workers: {', '.join(config.roles)}")
            until(lambda: settled(room, workers), "the day's work is done", workers)
            until(lambda: not _unmeasured(room), "all waits are measured", workers)
            say("the day's work is done; now a message that kills whoever works on it")
            put |= cases.put_all(room, cases.killing(bystanders=40))
            until(lambda: settled(room, workers), "everybody survives the killer", workers)
            say(f"{workers.killed} workers were killed by it and started again")
            _pay(room, workers, payouts, kills, say)
            _stop_the_clock(room, workers)
            wrong = judge.verdict(room, put, outside.read_notes(notes), workers.killed)
            wrong += judge.misplaced(room, {id: case for (_, id), case in put.items() if case.is_poison})
            wrong += [*payouts.wrong(), *_unticked(room), *_unmeasured(room), *look(room, workers)]
            _tell(room, say)
            wrong += repair(room, notes, lambda: settle(room, workers), lambda result: set(result.ids), say)
            wrong += [f"a worker ended with {code}" for code in workers.stop() if code]
    return wrong


def _stop_the_clock(room: Room, workers: Workers) -> None:
    """So that nothing is put any more while it is judged."""
    for name in room.config.schedules:
        Schedules(room).pause(name, "the day is over")
    settle(room, workers)


def _pay(room: Room, workers: Workers, payouts: Payouts, kills: int, say: Callable[[str], None]) -> None:
    """The provider goes down and comes back; then whoever pays is killed, again and again."""

    def wait(condition: Callable[[], object], what: str) -> None:
        until(condition, what, workers)

    payouts.go_down(room, wait)
    say("the payment provider was down: the breaker opened, payouts waited, and went on when it was back")
    payouts.kill(room, workers, kills, wait)
    wait(lambda: settled(room, workers), "every invoice is paid")
    say(f"{payouts.messages} messages for {payouts.count} invoices, {kills} of those who paid killed")


def _unticked(room: Room) -> list[str]:
    """Whether the schedule has put anything at all."""
    put = room.engine.stats("beat").counters["put"]
    return [] if put > cases.TICKS else [f"the schedule has put nothing: {put} ticks"]


def _unmeasured(room: Room) -> list[str]:
    """Queues that promise something about the wait, of which nobody has said yet how long it was."""
    return [f"nobody measured {sla.queue}" for sla in room.sla() if sla.target is not None and not sla.count]


def _tell(room: Room, say: Callable[[str], None]) -> None:
    say("queue                  promised  p95 of the wait")
    for sla in room.sla():
        if sla.target is not None:
            p95 = "-" if sla.p95 is None else f"{sla.p95 / 1_000:.3g} s of {sla.count:,} messages"
            say(f"{sla.queue:22} {sla.target / 1_000:6g} s  {p95}")
    for name, count in sorted(judge.dead_letters(room).items()):
        say(f"{name}: {count} dead letters")


def settled(room: Room, workers: Workers) -> bool:
    """Whether nothing waits and nothing is worked on; who was killed is started again."""
    workers.look()
    stats = [room.engine.stats(info.name) for info in room.queues()]
    return not any(stat.depth or stat.processing for stat in stats)


def settle(room: Room, workers: Workers) -> None:
    until(lambda: settled(room, workers), "nothing is left to do", workers)


def until(condition: Callable[[], object], what: str, workers: Workers | None = None) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            log = workers.log() if workers else ""
            raise TimeoutError(f"not within {PATIENCE:.0f} s: {what}\n{log}")
        time.sleep(0.05)


def run(play: Callable[[str, Path], list[str]], praise: str) -> int:
    """A scenario as a program: in the store that the first argument names, or in a file that is gone then."""
    with tempfile.TemporaryDirectory(prefix="marketplace-") as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/marketplace.db"
        wrong = play(url, Path(folder))
    for line in wrong:
        print("wrong:", line)
    print("FAIL" if wrong else f"PASS: {praise}")
    return 1 if wrong else 0
