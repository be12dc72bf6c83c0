"""`postroom top`, `sla`, `event tail` and `doctor`, run as people and scripts run them: as processes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import Delivery, Policy, Worker
from postroom.cli.top.screen import COLUMNS
from postroom.keeper import Keeper
from postroom.telemetry import Observed
from tests.cli.shell import CLEAN, COMMAND
from tests.cli.test_config_command import Shell
from tests.redis import servers

PATIENCE = 60.0


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A folder with a room in which something has happened."""
    shell = Shell(tmp_path)
    shell.write(f'url = "sqlite:///{tmp_path}/jobs.db"\n')
    with postroom.open(f"sqlite:///{tmp_path}/jobs.db", telemetry=True) as room:
        emails = room.queue("emails", policy=Policy(sla_p95="1h"))
        late = room.queue("late", policy=Policy(sla_p95="1ms", max_attempts=1))
        emails.put_many(range(5))
        late.put("x")
        Worker(room, {"emails": lambda delivery: None, "late": _fail}).run(drain=True)
        emails.put("later", delay="1h")
        emails.put("now")
        late.pause("for a reason")
        assert isinstance(room.engine, Observed)
        room.engine.recorder.add("wait:late", [(60.0, 99)])  # as if that many had waited for a minute
    return shell


def _fail(delivery: Delivery) -> None:
    raise ValueError("boom")


def documents(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# ---- top ------------------------------------------------------------------------------------------


def test_top_once_tells_all_queues(shell: Shell) -> None:
    heading, columns, emails, late, *_ = shell.run("top", "--once").stdout.splitlines()
    assert "jobs.db" in heading
    assert "NO KEEPER" in heading
    assert columns.split() == list(COLUMNS)
    assert emails.split()[:6] == ["emails", "1", "1", "0", "0", "0"]
    assert emails.split()[-1] == "60m"
    assert late.startswith("late (paused)")


def test_top_tells_programs_the_same(shell: Shell) -> None:
    (picture,) = documents(shell.run("top", "--once", "--json").stdout)
    emails, late = picture["queues"]
    assert (emails["ready"], emails["scheduled"], emails["target"]) == (1, 1, 3_600_000)
    assert late["p95"] > 50_000
    assert (late["dead"], late["paused"]) == (1, True)
    assert (picture["keeper"], picture["workers"], picture["error"]) == (False, {}, "")


def test_top_tells_rates_who_works_and_who_keeps(shell: Shell) -> None:
    with postroom.open(f"sqlite:///{shell.folder}/jobs.db") as room:
        room.consumer = "host:1"
        keeper = Keeper(room)
        keeper.tick()
        keeper.start()  # and goes on: the command may take long to begin
        held = room.queue("emails").claim(timeout=0)
        assert held
        process = started(shell, "top", "--json", "--every", "200ms")
        try:
            first = json.loads(line_of(process))
            assert first["queues"][0]["put_rate"] is None
            assert (first["keeper"], list(first["workers"].values())) == (True, [1])
            room.queue("emails").put_many(range(100))
            seen = (json.loads(line_of(process)) for _ in range(100))
            assert any(picture["queues"][0]["put_rate"] > 0 for picture in seen)
        finally:
            end(process, signal.SIGINT)
        assert process.returncode == 0
        held.ack()
        keeper.stop()


def test_top_in_a_pipe_goes_on_with_plain_lines(shell: Shell) -> None:
    process = started(shell, "top", "--every", "100ms")
    try:
        lines = [line_of(process) for _ in range(12)]
        assert sum("NO KEEPER" in line for line in lines) >= 2
        assert not any("\x1b" in line for line in lines)
    finally:
        end(process, signal.SIGINT)
    assert process.returncode == 0


def started(shell: Shell, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *args], cwd=shell.folder, env=CLEAN, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    line = process.stdout.readline()
    assert line, "it ended"
    return line


def end(process: subprocess.Popen[str], number: int) -> None:
    process.send_signal(number)
    process.wait(PATIENCE)
    assert process.stdout
    process.stdout.close()


class Terminal:
    """A command on a terminal of its own, of this size."""

    def __init__(self, shell: Shell, *args: str, width: int = 120, height: int = 30) -> None:
        self.ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.before = termios.tcgetattr(its)
        env = CLEAN | {"TERM": "xterm-256color", "COLUMNS": str(width), "LINES": str(height)}
        self.process = subprocess.Popen(
            [*COMMAND, *args], cwd=shell.folder, env=env, stdin=its, stdout=its, start_new_session=True
        )
        self.its = its
        self.output = ""

    def read_until(self, found: Callable[[str], object]) -> str:
        deadline = time.monotonic() + PATIENCE
        while not found(self.output):
            assert time.monotonic() < deadline, self.output
            if select.select([self.ours], [], [], 0.1)[0]:
                self.output += os.read(self.ours, 65_536).decode("utf-8", "replace")
        return self.output

    def press(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def close(self) -> int:
        try:
            deadline = time.monotonic() + PATIENCE
            while self.process.poll() is None and time.monotonic() < deadline:
                if select.select([self.ours], [], [], 0.05)[0]:  # or it would wait for somebody to read
                    self.output += os.read(self.ours, 65_536).decode("utf-8", "replace")
            assert self.process.poll() is not None, "it does not end"
            assert termios.tcgetattr(self.its) == self.before, "the terminal is not as it was found"
            return self.process.returncode
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            os.close(self.its)
            os.close(self.ours)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


@pytest.mark.parametrize("width", [80, 160])
def test_top_on_a_terminal_is_live_and_ends_with_q(shell: Shell, width: int) -> None:
    terminal = Terminal(shell, "top", "--every", "200ms", width=width)
    terminal.read_until(lambda text: plain(text).count("q ends") >= 2)
    terminal.press(b"xq")
    assert terminal.close() == 0
    shown = plain(terminal.output)
    assert "late (paused)" in shown
    assert ("sla" in shown) == (width == 160), "columns give way"
    assert "\x1b[?1049l" in terminal.output, "the other screen is left"


def test_top_on_a_terminal_ends_with_ctrl_c(shell: Shell) -> None:
    terminal = Terminal(shell, "top", "--every", "200ms")
    terminal.read_until(lambda text: "q ends" in plain(text))
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.close() == 0


def test_top_goes_on_when_the_store_goes_away_and_comes_back() -> None:
    with servers.single() as server:
        shell = Shell(server.folder)
        process = started(shell, "top", "--json", "--every", "100ms", "--url", server.url())
        try:
            assert json.loads(line_of(process))["error"] == ""
            server.kill()
            assert any(json.loads(line_of(process))["error"] for _ in range(200))
            server.restart()
            assert any(not json.loads(line_of(process))["error"] for _ in range(200))
        finally:
            end(process, signal.SIGINT)


# ---- sla ------------------------------------------------------------------------------------------


def test_sla_tells_who_keeps_the_promise(shell: Shell) -> None:
    columns, emails, late = shell.run("sla").stdout.splitlines()
    assert columns.split() == ["queue", "promised", "p95", "p50", "within", "measured", "verdict"]
    assert (emails.split()[1], emails.split()[-1]) == ("3600s", "kept")
    assert late.split()[-1] == "MISSED"


def test_sla_tells_scripts_with_its_exit_code(shell: Shell) -> None:
    found = json.loads(shell.run("sla", "--check", "--json", code=6).stdout)
    assert [(each["queue"], each["met"], each["count"]) for each in found] == [
        ("emails", True, 5),
        ("late", False, 100),
    ]
    shell.run("sla", code=0)


# ---- event tail -----------------------------------------------------------------------------------


def test_event_tail_tells_what_is_kept(shell: Shell) -> None:
    (dead, paused) = shell.run("event", "tail", "--all", "--for", "1s").stdout.splitlines()
    assert "late  move_to_dlq  1" in dead
    assert "late  pause  0  reason=for a reason" in paused
    assert shell.run("event", "tail", "--all", "--for", "1s", "-q", "emails").stdout == ""
    slip = shell.run("event", "tail", "--all", "--for", "1s", "-q", "emials", "-q", "late")
    assert slip.stderr == "there is no queue 'emials' yet\n"
    assert len(slip.stdout.splitlines()) == 2


def test_event_tail_follows_and_ends_with_ctrl_c(shell: Shell) -> None:
    process = started(shell, "event", "tail", "--json")
    with postroom.open(f"sqlite:///{shell.folder}/jobs.db") as room:
        try:
            room.queue("emails").pause("hello")
            assert process.stdout
            while not select.select([process.stdout], [], [], 0.2)[0]:  # it may have begun to follow later
                room.queue("emails").resume()
                room.queue("emails").pause("hello")
            entry = json.loads(line_of(process))
            assert entry["queue"] == "emails"
            assert entry["event"] in ("pause", "resume")
        finally:
            end(process, signal.SIGINT)
    assert process.returncode == 0


def test_event_tail_tells_which_breakers_open_and_close(shell: Shell) -> None:
    shell.run("breaker", "open", "psp", "--reason", "they asked us to stop")
    shell.run("breaker", "close", "psp")
    opened, closed = shell.run("event", "tail", "-t", "breaker", "--all", "--for", "0s").stdout.splitlines()
    assert "breaker  name=psp  before=closed  after=open" in opened
    assert opened.endswith("reason=they asked us to stop")
    assert "before=open  after=closed" in closed
    told = shell.run("event", "tail", "-t", "breaker", "--all", "--for", "0s", "--json").stdout.splitlines()
    assert [json.loads(line)["data"]["after"] for line in told] == ["open", "closed"]
    assert shell.run("event", "tail", "-t", "breaker", "--for", "0s").stdout == ""  # from now on


def test_event_tail_tells_whatever_is_published(shell: Shell) -> None:
    with postroom.open(f"sqlite:///{shell.folder}/jobs.db") as room:
        room.engine.publish("news", [b"[1, 2]", b"no JSON \xff", b'"text"'])
    lines = shell.run("event", "tail", "-t", "news", "--all", "--for", "0s").stdout.splitlines()
    assert [line.split("  ", 1)[1] for line in lines] == [
        "news  [1, 2]",
        "news  no JSON \ufffd",
        "news  text",
    ]


def test_event_tail_of_a_topic_has_no_queues(shell: Shell) -> None:
    refused = shell.run("event", "tail", "-t", "breaker", "-q", "emails", code=2)
    assert "a topic has no queues" in refused.stderr


# ---- doctor ---------------------------------------------------------------------------------------


def test_doctor_says_what_is_worth_a_change(shell: Shell) -> None:
    (shell.folder / "jobs.db").chmod(0o600)
    lines = shell.run("doctor").stdout.splitlines()
    levels = {line[:4].strip() for line in lines}
    assert levels == {"ok", "warn", ""}
    text = "\n".join(lines)
    assert re.search(r"warn  keeper +none leads", text)
    assert re.search(r"warn  queue late +paused: for a reason", text)
    assert re.search(r"warn  queue late +p95 of the wait is \d", text)
    assert all(line.lstrip().startswith("-> ") for line in lines if not line[:4].strip())
    shell.run("doctor", "--strict", code=6)


def test_doctor_is_unhealthy_when_schedules_do_not_run(shell: Shell) -> None:
    shell.write(f'url = "sqlite:///{shell.folder}/jobs.db"\n[schedule.it]\nevery = "1h"\nqueue = "emails"\n')
    assert "1 schedules do not run" in shell.run("doctor", code=6).stdout


def test_doctor_tells_queues_near_their_limits(shell: Shell) -> None:
    with postroom.open(f"sqlite:///{shell.folder}/jobs.db") as room:
        room.queue("small", policy=Policy(capacity=10, dead_limit=1, max_attempts=1)).put_many(range(9))
        taken = room.queue("small").claim(timeout=0)
        assert taken
        taken.bury("x")
        room.queue("small").put("x")
    found = json.loads(shell.run("doctor", "--json").stdout)
    texts = [finding["text"] for finding in found if finding["check"] == "queue small"]
    assert texts == [
        "9 wait, and its capacity is 10",
        "1 dead letters, and 1 are kept",
    ]


def test_doctor_of_a_store_that_is_not_there_is_unhealthy(shell: Shell) -> None:
    with servers.silent_port() as port:
        url = f"redis://:secret@127.0.0.1:{port}/0"
        found = json.loads(shell.run("doctor", "--json", "--url", url, code=6).stdout)
    assert [(finding["check"], finding["level"]) for finding in found] == [("room", "fail")]
    assert "secret" not in found[0]["text"]


def test_doctor_looks_at_redis(shell: Shell) -> None:
    with servers.single({"appendonly": "no"}) as server:
        run = shell.run("doctor", "--url", server.url(), code=6)
    assert re.search(r"fail  append-only file +appendonly is off", run.stdout)
    assert re.search(r"ok    clock +the server's is 0\.\d+ s", run.stdout)
