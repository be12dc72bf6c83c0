"""The scenario: put a day's work and its poison, let the roles work, kill some of them, and judge."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import postroom
from examples.marketplace import cases, judge, outside
from examples.marketplace.workers import Workers
from postroom.config import load
from postroom.room import Room

MATRIX = Path(__file__).with_name("postroom.toml")
#: All of it may take so long (seconds); it ends as soon as everything is settled.
PATIENCE = 180.0


def hurried(folder: Path) -> Path:
    """The matrix with waits between attempts that are a thousand times shorter; nothing else is changed."""
    file = folder / "postroom.toml"
    text = re.sub(r'(backoff = ".*\d)s"', r'\1ms"', MATRIX.read_text(encoding="utf-8"))
    file.write_text(text, encoding="utf-8")
    return file


def play(url: str, folder: Path, *, each: int = 20, say: Callable[[str], None] = print) -> list[str]:
    """Play it in this store, with the notes in this folder; everything that is not as it has to be."""
    file, notes = hurried(folder), folder / "notes"
    config = load(file, url=url)
    with postroom.open(config=config) as room:
        put = cases.put_all(room, cases.late())
        until(lambda: room.engine.sweep("chat_events").expired or None, "the late message expires")
        put |= cases.put_all(room, cases.everyday(config, each))
        say(f"put {len(put)} messages into {len(config.declared)} queues")
        with Workers(config.roles, url, file, notes) as workers:
            say(f"started {len(config.roles)} workers: {', '.join(config.roles)}")
            until(lambda: settled(room, workers), "the day's work is done", workers)
            say("the day's work is done; now a message that kills whoever works on it")
            put |= cases.put_all(room, cases.killing(bystanders=40))
            until(lambda: settled(room, workers), "everybody survives the killer", workers)
            say(f"{workers.killed} workers were killed by it and started again")
            wrong = [f"a worker ended with {code}" for code in workers.stop() if code]
        wrong += judge.verdict(room, put, outside.read_notes(notes), workers.killed)
        for name, count in sorted(judge.dead_letters(room).items()):
            say(f"{name}: {count} dead letters")
    return wrong


def settled(room: Room, workers: Workers) -> bool:
    """Whether nothing waits and nothing is worked on; who was killed is started again."""
    workers.look()
    stats = [room.engine.stats(info.name) for info in room.queues()]
    return not any(stat.depth or stat.processing for stat in stats)


def until(condition: Callable[[], object], what: str, workers: Workers | None = None) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            log = workers.log() if workers else ""
            raise TimeoutError(f"not within {PATIENCE:.0f} s: {what}\n{log}")
        time.sleep(0.05)
