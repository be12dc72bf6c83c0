"""`postroom dead` and `postroom audit`, run as people and scripts run them: as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom.deadletters import DeadLetters, Filter
from postroom.model import Failure
from postroom.policy import Policy
from postroom.room import Room
from tests.cli.shell import CLEAN, COMMAND
from tests.cli.test_config_command import Shell

SLOW = Failure(type="TimeoutError", text="timed out", traceback="Traceback: in send", fingerprint="slow-one")
WRONG = Failure(type="KeyError", text="'user'", traceback="…", fingerprint="wrong-one")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    """The store that the commands find by default, with letters in two queues of dlq_fast."""
    with postroom.open(f"sqlite:///{tmp_path}/postroom.db") as room:
        for name in ("chat_events", "fast_default"):
            room.queue(name, Policy(dead_letter="dlq_fast"))
        bury(room, "chat_events", SLOW, {"user": {"id": 1}}, {"user": {"id": 2}})
        bury(room, "fast_default", WRONG, {"user": {"id": 3}})
        yield room


def bury(room: Room, queue: str, failure: Failure, *bodies: Any) -> None:
    where = room.queue(queue)
    where.put_many([where.message(body, kind="send").replace(failure=failure) for body in bodies])


def load(run: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(run.stdout)


def test_ls(room: Room, shell: Shell) -> None:
    run = shell.run("dead", "ls", "dlq_fast")
    header, *rows = run.stdout.splitlines()
    assert header.split() == ["id", "died", "queue", "task", "class", "group", "replayed", "error"]
    assert len(rows) == 3
    assert "TimeoutError: timed out" in rows[0]
    assert run.stderr == ""
    shown = load(shell.run("dead", "ls", "-w", "class=timeout", "-w", "payload.user.id=2", "--json"))
    assert [letter["args"] for letter in shown["letters"]] == [[{"user": {"id": 2}}]]
    assert (shown["scanned"], shown["complete"], shown["cursor"]) == (3, True, None)


def test_ls_goes_on_where_a_page_ended(room: Room, shell: Shell) -> None:
    first = shell.run("dead", "ls", "--limit", "2", "--json")
    cursor = load(first)["cursor"]
    assert f"go on with --cursor {cursor}" in first.stderr
    rest = load(shell.run("dead", "ls", "--cursor", cursor, "--json"))
    assert [letter["queue"] for letter in rest["letters"]] == ["fast_default"]


def test_what_to_do_is_told_where_one_looks(room: Room, shell: Shell) -> None:
    """In the words of the queues that have letters to show, and of no other."""
    advice = "Replay after fixing upstream message"
    for name in ("chat_events", "quiet"):
        room.queue(name, Policy(dead_letter="dlq_fast", on_dead=advice))
    (letter, *_) = DeadLetters(room, "chat_events").find().letters
    for command in (("dead", "ls"), ("dead", "groups")):
        assert shell.run(*command, "dlq_fast").stderr == f"chat_events: {advice}\n"
        assert load(shell.run(*command, "dlq_fast", "--json"))["on_dead"] == {"chat_events": advice}
    assert f"on_dead         {advice}" in shell.run("dead", "show", letter.id).stdout.splitlines()
    assert load(shell.run("dead", "show", letter.id, "--json"))["on_dead"] == advice


def test_a_letter_is_shown_with_what_is_known_of_its_group(room: Room, shell: Shell) -> None:
    (letter, *_) = DeadLetters(room, "chat_events").find().letters
    DeadLetters(room).note("slow-one", status="acknowledged", bucket="transient", cause="the disk was full")
    out = shell.run("dead", "show", letter.id).stdout.splitlines()
    assert "incident        acknowledged, transient: the disk was full" in out
    shown = load(shell.run("dead", "show", letter.id, "--json"))["incident"]
    assert (shown["status"], shown["cause"]) == ("acknowledged", "the disk was full")


def test_groups(room: Room, shell: Shell) -> None:
    run = shell.run("dead", "groups", "dlq_fast")
    assert [line.split()[:2] for line in run.stdout.splitlines()] == [
        ["group", "count"], ["slow-one", "2"], ["wrong-one", "1"],
    ]  # fmt: skip
    shown = load(shell.run("dead", "groups", "--limit", "1", "--json"))
    assert [group["group"] for group in shown["groups"]] == ["slow-one"]
    assert not shown["complete"]


def test_show(room: Room, shell: Shell) -> None:
    letter = DeadLetters(room).find(Filter(error="KeyError")).letters[0]
    shown = load(shell.run("dead", "show", letter.id, "--json"))
    assert shown == letter.as_dict()
    text = shell.run("dead", "show", letter.id).stdout
    assert "exception       KeyError: 'user'" in text
    missing = shell.run("dead", "show", "0" * 32, code=3)
    assert missing.stderr == f"postroom: there is no dead letter {'0' * 32}\n"


def test_replay_one(room: Room, shell: Shell) -> None:
    letter = DeadLetters(room).find().letters[0]
    run = shell.run("dead", "replay", letter.id, "--to", "fast_default", "--body", '{"user": 7}')
    (new,) = run.stdout.split()
    assert room.queue("fast_default").get(new).message.body == b'{"user":7}'
    assert "replay: 1" in run.stderr
    again = shell.run("dead", "replay", letter.id)
    assert again.stdout == ""
    assert "1 were replayed before (--again takes them too)" in again.stderr


@pytest.mark.parametrize("verb", ["replay", "discard"])
@pytest.mark.parametrize("name", ["dlq_fast", "chat_events"])
def test_a_name_in_the_place_of_an_id_is_told_where_it_belongs(
    room: Room, shell: Shell, verb: str, name: str
) -> None:
    run = shell.run("dead", verb, name, "--yes", code=2)
    assert run.stderr == f"postroom: {name} is a name and no ID: say -q {name}, with --where or --all\n"


def test_the_payload_of_a_celery_task_is_its_call(room: Room, shell: Shell) -> None:
    queue = room.queue("chat_events")
    queue.put(queue.message([[1], {}, {}], kind="send", correlation_id="t-1").replace(failure=SLOW))
    wrong = shell.run("dead", "replay", "t-1", "--body", '{"user": 7}', code=2)
    assert wrong.stderr.startswith("postroom: the payload of a Celery task is")
    (new,) = shell.run("dead", "replay", "t-1", "--body", '{"args": [7]}').stdout.split()
    assert queue.get(new).message.body == b"[[7],{},{}]"


def test_replay_all_that_match(room: Room, shell: Shell) -> None:
    where = ("-q", "dlq_fast", "-w", "group=slow")
    planned = load(shell.run("dead", "replay", *where, "--dry-run", "--json"))
    assert (planned["eligible"], planned["done"], planned["dry_run"]) == (2, 0, True)
    asked = shell.run("dead", "replay", *where, code=2)
    assert "say --yes, or --dry-run" in asked.stderr
    assert room.queue("chat_events").stats().ready == 0
    done = load(shell.run("dead", "replay", *where, "--yes", "--json"))
    assert (done["done"], done["matched"]) == (2, 2)
    assert room.queue("chat_events").stats().ready == 2


def test_replay_that_ends_early_is_code_4(room: Room, shell: Shell) -> None:
    run = shell.run("dead", "replay", "--all", "--yes", "--canary", "--canary-timeout", "10ms", code=4)
    assert "stopped early: the canary" in run.stderr
    assert room.queue("chat_events").stats().ready == 1
    missing = shell.run("dead", "replay", "0" * 32, code=3)
    assert "there is no such dead letter" in missing.stderr


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--all", "-w", "kind=send"),
        ("-w", "colour=red"),
        ("-w", "kind"),
        ("-w", "attempts=many"),
        ("-w", "replayed=perhaps"),
        ("--all", "--body", "{}"),
        ("x", "--body", "no json"),
        ("--all", "--yes", "--rate", "fast"),
    ],
)
def test_what_makes_no_sense_is_code_2_and_one_line(room: Room, shell: Shell, args: tuple[str, ...]) -> None:
    run = shell.run("dead", "replay", *args, code=2)
    assert run.stdout == ""
    assert run.stderr.startswith("postroom: ")
    assert run.stderr.count("\n") == 1
    assert room.queue("chat_events").stats().ready == 0


def test_the_payload_of_one_id_is_of_no_other_letter(room: Room, shell: Shell) -> None:
    """What a handler put bears the id of its message as correlation id."""
    letter = DeadLetters(room).find().letters[0]
    where = room.queue("fast_default")
    where.put_many([where.message("child", correlation_id=letter.id).replace(failure=SLOW)])
    (new,) = shell.run("dead", "replay", letter.id, "--body", '{"user": 7}').stdout.split()
    assert room.queue(letter.queue).get(new).message.body == b'{"user":7}'
    assert room.queue("fast_default").stats().ready == 0


def test_discard(room: Room, shell: Shell) -> None:
    letter = DeadLetters(room).find().letters[0]
    shell.run("dead", "discard", letter.id, code=2)
    assert shell.run("dead", "discard", letter.id, "--yes").stdout == f"{letter.id}\n"
    run = shell.run("dead", "discard", "-w", "error=timed", "--yes", "--json")
    assert load(run)["done"] == 1
    assert room.queue("chat_events").stats().dead == 0


def test_on_a_terminal_it_asks(room: Room, shell: Shell) -> None:
    import pty

    for answer, code, left in ((b"n\n", 1, 2), (b"y\n", 0, 0)):
        ours, its = pty.openpty()
        command = [*COMMAND, "dead", "discard", "-w", "group=slow"]
        process = subprocess.Popen(
            command, cwd=shell.folder, env=CLEAN, stdin=its, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        os.write(ours, answer)
        _, talk = process.communicate(timeout=60)
        os.close(ours)
        os.close(its)
        assert process.returncode == code, talk
        assert b"discard 2 dead letters?" in talk
        assert room.queue("chat_events").stats().dead == left


def test_note_and_the_incident_log(room: Room, shell: Shell) -> None:
    nothing = shell.run("dead", "note", "slow", code=3)
    assert "nothing is noted about group slow" in nothing.stderr
    shell.run("dead", "note", "slow", "disk full", "--status", "acknowledged", "--bucket", "transient")
    shown = load(shell.run("dead", "note", "slow", "--fix", "deployed", "--json"))
    assert (shown["group"], shown["status"], shown["bucket"], shown["fix"]) == (
        "slow-one", "acknowledged", "transient", "deployed",
    )  # fmt: skip
    assert "disk full" in shell.run("dead", "note", "slow-one").stdout
    assert [incident["group"] for incident in load(shell.run("dead", "note", "--json"))["incidents"]] == [
        "slow-one"
    ]
    assert "acknowledged, transient" in shell.run("dead", "groups").stdout
    assert (
        "status: 'closed' is not one of"
        in shell.run("dead", "note", "slow", "--status", "closed", code=2).stderr
    )


def last_line(run: subprocess.CompletedProcess[str]) -> str:
    """What it said at its end: whatever takes longer than a second tells how far it is."""
    return run.stderr.splitlines()[-1]


def test_export_and_import(room: Room, shell: Shell, tmp_path: Path) -> None:
    run = shell.run("dead", "export", "dlq_fast")
    assert last_line(run) == "exported: 3"
    assert [json.loads(line)["task_name"] for line in run.stdout.splitlines()] == ["send"] * 3
    shell.run("dead", "export", "-w", "group=slow", "-o", "letters.jsonl")
    DeadLetters(room).discard(Filter(group="slow-one"))
    assert load(shell.run("dead", "import", "letters.jsonl", "--dry-run", "--json"))["read"] == 2
    assert room.queue("chat_events").stats().dead == 0
    assert last_line(shell.run("dead", "import", "letters.jsonl")) == "imported: 2; 0 were here already"
    assert last_line(shell.run("dead", "import", "letters.jsonl")) == "imported: 0; 2 were here already"
    assert room.queue("chat_events").stats().dead == 2
    assert "No such file" in shell.run("dead", "import", "nope.jsonl", code=2).stderr
    (tmp_path / "wrong.jsonl").write_text("hello\n")
    assert "line 1: this is no dead letter" in shell.run("dead", "import", "wrong.jsonl", code=2).stderr


def test_a_name_that_is_not_there_is_code_3_and_the_others_are_named(room: Room, shell: Shell) -> None:
    run = shell.run("dead", "groups", "dlq_slow", code=3)
    assert run.stderr == (
        "postroom: 'dlq_slow' is neither a queue nor a dead-letter name; "
        "there are the queues 'chat_events', 'fast_default' and the names 'dlq_fast'\n"
    )


def test_retention_is_never_silent(room: Room, shell: Shell) -> None:
    room.queue("chat_events", Policy(dead_letter="dlq_fast", dead_limit=1))
    bury(room, "chat_events", SLOW, {})
    room.engine.sweep("chat_events")
    assert "2 dead letters were evicted by retention so far" in shell.run("dead", "ls").stderr


def test_a_store_that_is_away_is_code_5(shell: Shell) -> None:
    run = shell.run("dead", "ls", "--url", "redis://127.0.0.1:1/0", code=5)
    assert run.stderr.count("\n") == 1


def test_audit_tail(room: Room, shell: Shell) -> None:
    shell.run("dead", "discard", "--all", "--yes", "-q", "dlq_fast")
    room.queue("chat_events").pause("deploy")
    lines = shell.run("audit", "tail").stdout.splitlines()
    assert [line.split()[3] for line in lines] == ["declare", "declare", "discard", "discard", "pause"]
    assert "discard dlq_fast  3" in lines[3]
    assert "pause chat_events  0  reason deploy" in lines[4]
    acts = [json.loads(line) for line in shell.run("audit", "tail", "-l", "2", "--json").stdout.splitlines()]
    assert [act["event"] for act in acts] == ["discard", "pause"]
    assert "pause" not in shell.run("audit", "tail", "-q", "dlq_fast").stdout


def test_audit_can_be_followed(room: Room, shell: Shell) -> None:
    room.queue("chat_events").pause("before")
    command = [*COMMAND, "audit", "tail", "--follow", "--json"]
    with subprocess.Popen(
        command, cwd=shell.folder, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        try:
            before = [json.loads(process.stdout.readline())["event"] for _ in range(3)]
            assert before == ["declare", "declare", "pause"]
            room.queue("chat_events").resume()
            assert json.loads(process.stdout.readline())["event"] == "resume"
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize("verb", ["ls", "groups", "show", "note", "replay", "discard", "export", "import"])
def test_help_teaches(shell: Shell, verb: str) -> None:
    shown = shell.run("dead", verb, "--help").stdout
    assert f"Examples:\n    postroom dead {verb}" in shown
