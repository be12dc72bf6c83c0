"""The scenario with Celery's workers: the same matrix, the same fates, and what becomes of the dead letters.

`python -m examples.marketplace.celery_scenario [URL]`: PASS or FAIL.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from celery import Celery
from celery.utils import uuid

import postroom
import postroom.celery
from examples.marketplace import cases, judge, outside
from examples.marketplace.cases import Case
from examples.marketplace.repair import done, repair
from examples.marketplace.scenario import hurried, nobody_looks, run, settle, settled, until
from examples.marketplace.workers import CLOCK, Workers, by_celery
from postroom.config import Config, load
from postroom.deadletters import DeadLetters
from postroom.room import Room

TASKS = {
    "notifications_email": "send_email",
    "chat_events": "on_chat_event",
    "heavy_settlements": "settle_escrow",
    "heavy_payouts": "pay_out",
    "media_processing": "make_thumbnail",
    "beat": "on_tick",
}
#: Seconds between two ticks; what the schedule of the matrix, and what Celery's beat has put.
TICK = 2
SCHEDULES, BEATS = "fast_default", "heavy_settlements"
#: By task id.
Sent = dict[str, Case]


def task_name(case: Case) -> str:
    return f"marketplace.{case.options.get('kind') or TASKS[case.queue]}"


def send_all(app: Celery, played: list[Case]) -> Sent:
    """Send them, and remember each by its task id. Where they go is the matrix's to know."""
    sent: Sent = {}
    for case in played:
        if case.fate == "garbled":
            sent[_send_garbled(app, case)] = case
            continue
        expires = -1 if case.fate == "late" else None
        # What nobody has a task for has no route either.
        queue = case.queue if case.fate == "stranger" else None
        result = app.send_task(task_name(case), [case.body], expires=expires, queue=queue)
        sent[result.id] = case
    return sent


def _send_garbled(app: Celery, case: Case) -> str:
    """What no worker can decode, as a broken sender would have it: with all the headers of a task; its id."""
    id = str(uuid())
    with app.producer_or_acquire() as producer:
        producer.publish(
            case.body, routing_key=case.queue, headers={"task": task_name(case), "id": id, "lang": "py"},
            content_type="application/json", content_encoding="utf-8",
        )  # fmt: skip
    return id


def everyday(config: Config, each: int) -> list[Case]:
    """A day's work."""
    day = cases.everyday(config, each)
    # A webhook waits as long as it says itself, which no matrix hurries: one retry is enough to see.
    for case in day:
        if case.options.get("kind") == "send_webhook" and case.fate == "flaky":
            case.body["times"] = 1
    return day + cases.late()


def play(
    url: str,
    folder: Path,
    *,
    each: int = 6,
    say: Callable[[str], None] = print,
    look: Callable[[Room, Workers], list[str]] = nobody_looks,
) -> list[str]:
    """Play it in this store, with the notes in this folder; everything that is not as it has to be.

    Somebody may `look` before anything is replayed, and find something wrong.
    """
    file, notes = hurried(folder, tick=f"{TICK}s"), folder / "notes"
    config = load(file, url=url)
    sender = Celery("sender", broker=f"postroom+{url}", set_as_current=False)
    postroom.celery.setup(sender, config)
    with (
        postroom.open(config=config) as room,
        Workers((*config.roles, CLOCK), url, file, notes, by_celery, {outside.TICK: f"{TICK}"}) as workers,
    ):
        sent = send_all(sender, everyday(config, each))
        say(f"sent {len(sent)} tasks")
        until(lambda: settled(room, workers), "the day's work is done", workers)
        until(lambda: not _unticked(sent, notes), "both clocks have ticked", workers)
        workers.kill(CLOCK)
        ticks = _ticks(sent, notes)
        sent |= send_all(sender, cases.killing(bystanders=20))
        until(lambda: settled(room, workers), "everybody survives the killer", workers)
        poison = {id: case for id, case in sent.items() if case.is_poison}
        wrong = [*_judge(room, sent, notes), *judge.misplaced(room, poison), *look(room, workers)]
        for name in ("dlq_fast", "dlq_heavy"):
            say(f"{name}: {len(DeadLetters(room, name).find().letters)} dead letters")
        healed = {id for id, case in poison.items() if case.fate == "poison"}
        wrong += repair(room, notes, lambda: settle(room, workers), lambda result: healed, say)
        until(lambda: _ticks(sent, notes)[BEATS] > ticks[BEATS], "another beat takes over", workers)
        say("ticks: by the schedule of the matrix and by Celery's beat, which was killed and is back")
        wrong += [f"a worker ended with {code}" for code in workers.stop() if code]
    postroom.celery.close_offices()
    return wrong


def _ticks(sent: Sent, notes: Path) -> Counter[str]:
    """How often each queue had work that nobody sent: a clock did, through the queue `beat`."""
    told = {(line["queue"], line["id"]) for line in outside.read_notes(notes) if line["what"] == "done"}
    return Counter(queue for queue, id in told if id not in sent and ("beat", id) in told)


def _unticked(sent: Sent, notes: Path) -> set[str]:
    """Of which clock nothing was heard yet."""
    return {SCHEDULES, BEATS} - _ticks(sent, notes).keys()


def _judge(room: Room, sent: Sent, notes: Path) -> Iterator[str]:
    """Every poison task is dead, in its queue and of the right class; all else is done, and not dead."""
    finished = done(notes)
    dead = {letter.call.task_id: letter for letter in DeadLetters(room).find(limit=1_000).letters}
    for id, case in sent.items():
        if not case.is_poison and (id in dead or id not in finished):
            yield f"{case.fate} task {id} of {case.queue} is {'dead' if id in dead else 'not done'}"
        elif case.is_poison and id not in dead:
            yield f"{case.fate} task {id} of {case.queue} is not dead"
    for id, letter in dead.items():
        if id not in sent:
            yield f"a tick is dead: {letter.failure.summary}"
            continue
        case = sent[id]
        found = (letter.queue, letter.call.task_name, str(letter.classification), letter.retries)
        wanted = (case.queue, task_name(case), cases.CLASSES.get(case.fate), _retries(room, case))
        if case.is_poison and found != wanted:
            yield f"{case.fate} task {id} is {found}, not {wanted}: {letter.failure.summary}"


def _retries(room: Room, case: Case) -> int:
    """How often it has to have been tried again. A webhook says itself what is worth another try."""
    if case.fate not in ("poison", "killer") or case.options.get("kind") == "send_webhook":
        return 0
    return room.queue(case.queue).policy.max_attempts - 1


if __name__ == "__main__":
    sys.exit(run(play, "every poison task was a dead letter, and is done after the fix"))
