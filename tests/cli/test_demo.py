"""`postroom demo`, run as people run it: in a pipe, on a terminal, stopped in the middle, and broken."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

import postroom
from tests.processes import has_ended

COMMAND = [sys.executable, "-c", "import sys; from postroom.cli import main; sys.exit(main())", "demo"]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("POSTROOM_", "NO_COLOR"))}
ESCAPE = "\x1b"
ADDRESS = r"Postroom serves (http://127\.0\.0\.1:\d+)\n"
PATIENCE = 60.0
CHECKS, WITHOUT_CELERY = 15, 12


def run(
    *args: str, code: int, folder: Path | None = None, **environ: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, *args], cwd=folder, env=CLEAN | environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


class Running(NamedTuple):
    """A demo that has begun: its own process and those of its workers."""

    process: subprocess.Popen[str]
    workers: list[int]

    def read_until(self, words: str) -> None:
        assert self.process.stdout
        assert self.process.stderr
        for line in self.process.stdout:
            if words in line:
                return
        raise AssertionError(self.process.stderr.read())

    def end(self) -> tuple[int, str]:
        """Its exit code and what else it says."""
        out, err = self.process.communicate(timeout=PATIENCE)
        assert err == ""
        return self.process.returncode, out


@contextlib.contextmanager
def started(folder: Path, **environ: str) -> Iterator[Running]:
    """A demo at its beginning, with its temporary files in this folder."""
    env = CLEAN | {"TMPDIR": str(folder)} | environ
    command = [*COMMAND, "--seconds", "10"]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            assert re.fullmatch(ADDRESS, process.stdout.readline()), "the address comes first"
            yield Running(process, pids(process.stdout.readline()))
        finally:
            process.kill()


def pids(said: str) -> list[int]:
    found = re.search(r"two worker processes, (\d+) and (\d+), and a Celery worker, (\d+)\b", said)
    assert found, said
    return [int(pid) for pid in found.groups()]


# ---- The whole of it ------------------------------------------------------------------------------


def test_in_a_pipe_it_tells_in_plain_lines_and_everything_passes(tmp_path: Path) -> None:
    # Somebody's real configuration, and a broken one: the demo plays neither with it nor in it.
    (tmp_path / "postroom.toml").write_text("nonsense = [", encoding="utf-8")
    temporary = tmp_path / "50% of a #folder?"
    temporary.mkdir()
    environ = {"POSTROOM_URL": "redis://production", "FORCE_COLOR": "1", "TMPDIR": str(temporary)}
    done = run("--seconds", "5", code=0, folder=tmp_path, **environ)
    assert ESCAPE not in done.stdout
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("FAIL")] == []
    assert len([line for line in lines if line.startswith("PASS  ")]) == CHECKS
    assert f"all {CHECKS} checks passed" in lines
    assert lines.index("what next:") == len(lines) - 4
    # One line a second for where things stand, and the room's own history between the story's lines.
    assert len([line for line in lines if re.search(r"s  all +ready \d+  scheduled", line)]) >= 2
    told = {line.split()[1] for line in lines if re.match(r" *\d+\.\d+s  ", line)}
    assert told == {"story", "all", "emails", "payments", "reports", "orders"}
    for event in ("paused", "resumed", "to be tried again", "dead letter", "came back", "replayed"):
        assert event in done.stdout
    killed = {int(pid) for pid in re.findall(r"kill -9 (\d+):", done.stdout)}
    celery = pids(done.stdout)[2]
    assert len(killed) == 2
    assert killed & set(pids(done.stdout)) == {celery}
    assert list(temporary.iterdir()) == []


NO_CELERY = "import sys; sys.modules['celery'] = sys.modules['kombu'] = None"


def test_without_celery_one_line_says_so_and_the_rest_passes(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_CELERY, encoding="utf-8")
    said = run("--seconds", "5", code=0, PYTHONPATH=str(tmp_path)).stdout
    about = [line for line in said.splitlines() if "celery" in line.lower()]
    assert len(about) == 1
    assert "Celery is not installed, so its part is left out: pip install 'postroom[celery]'" in about[0]
    assert f"all {WITHOUT_CELERY} checks passed" in said


NO_HTTP = "import sys; sys.modules['litestar'] = None"


def test_without_http_one_line_says_so_and_it_does_not_stay(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_HTTP, encoding="utf-8")
    said = run(code=0, PYTHONPATH=str(tmp_path)).stdout
    assert said.startswith("HTTP is not installed, so nothing is served: pip install 'postroom[http]'\n")
    assert f"all {CHECKS} checks passed" in said


def test_it_stays_up_after_the_verdicts_until_ctrl_c(tmp_path: Path) -> None:
    env = CLEAN | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        COMMAND, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        try:
            assert demo.stdout
            said = demo.stdout.readline()
            served = re.fullmatch(ADDRESS, said)
            assert served, said
            for line in demo.stdout:
                said += line
                if "until Ctrl-C" in line:
                    break
            assert f"all {CHECKS} checks passed" in said, said
            assert acked(served[1]) > 0
            deadline, before = time.monotonic() + PATIENCE, acked(served[1])
            while acked(served[1]) <= before:  # the work goes on
                assert time.monotonic() < deadline
                time.sleep(0.1)
            demo.send_signal(signal.SIGINT)
            _, err = demo.communicate(timeout=PATIENCE)
        finally:
            demo.kill()
    assert (demo.returncode, err) == (0, "")
    assert list(tmp_path.iterdir()) == []


def acked(address: str) -> int:
    queues = httpx.get(f"{address}/api/v1/stats", timeout=PATIENCE).json()["queues"]
    return sum(queue["counters"]["acked"] for queue in queues)


EARLY = """
from postroom.cli.demo import celery_app

with_task = celery_app.with_task


def acking(app, work):
    def ack_and_work(task, number, gets_stuck):
        from postroom.celery import offices

        for held in offices._offices._open.values():
            for tag in list(held.held):
                held.settle(tag)
            held.flush()
        work(task, number, gets_stuck)

    return with_task(app, ack_and_work)


celery_app.with_task = acking
"""


def test_a_celery_worker_that_acks_before_it_works_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(EARLY, encoding="utf-8")
    said = run("--seconds", "5", code=6, PYTHONPATH=str(tmp_path)).stdout
    failed = "\n".join(line for line in said.splitlines() if line.startswith("FAIL"))
    assert "nothing was lost" in failed
    assert "Celery: a killed worker's task ran again" in failed


# ---- Before its end ---------------------------------------------------------------------------------


def test_on_a_terminal_there_is_a_live_table_until_ctrl_c(tmp_path: Path) -> None:
    screen, code = on_terminal("--seconds", "10", until="unique key", TMPDIR=str(tmp_path))
    assert code == 130
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen)
    assert plain.count("what happens") >= 2, "the table is drawn again and again"
    assert re.search(r"queue +ready +scheduled +processing +overdue +dead +done +oldest", plain)
    assert "reports  paused" in plain
    assert "stopped early:" in plain
    assert "FAIL" not in plain, "Ctrl-C is for the demo alone: no worker ended by accident"
    assert screen.count(f"{ESCAPE}[?25l") == screen.count(f"{ESCAPE}[?25h") == 1, "the cursor comes back"
    assert list(tmp_path.iterdir()) == []
    assert all(map(has_ended, pids(plain)))


def on_terminal(*args: str, until: str, **environ: str) -> tuple[str, int]:
    """What it shows on a terminal on which Ctrl-C is typed once these words are there; its exit code."""
    env = CLEAN | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"} | environ
    ours, its = pty.openpty()
    # The first terminal that a new session opens is the one whose Ctrl-C it hears.
    command = ["sh", "-c", 'exec "$@" <"$0"', os.ttyname(its), *COMMAND, *args]
    output, typed = b"", False
    with subprocess.Popen(command, env=env, stdout=its, stderr=its, start_new_session=True) as process:
        os.close(its)
        with os.fdopen(ours, "r+b", buffering=0) as terminal, contextlib.suppress(OSError):
            while chunk := terminal.read(65_536):  # Linux raises when the last writer has closed the terminal
                output += chunk
                if not typed and until.encode() in output:
                    typed = terminal.write(b"\x03") > 0
    # With Ctrl-C a terminal drops what nobody has read yet, which may begin in the middle of a character.
    return output.decode(errors="replace"), process.returncode


def test_stopped_in_the_middle_it_says_what_was_done_so_far(tmp_path: Path) -> None:
    with started(tmp_path) as demo:
        demo.read_until("unique key")
        demo.process.terminate()
        code, rest = demo.end()
    assert code == 143
    assert "stopped early:" in rest
    assert "FAIL" not in rest
    assert re.search(
        "^PASS  nothing was lost +[1-9][0-9]* accepted, [1-9][0-9]* still waiting$", rest, re.MULTILINE
    )
    assert re.search("^SKIP  a paused queue handed out nothing +not reached$", rest, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []
    assert all(map(has_ended, demo.workers))


PATIENT = "from postroom.cli.demo import processes; processes._PATIENCE = 600.0"


def test_asked_twice_it_waits_for_nobody(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Asked once it would wait for the worker that does not stop, here for longer than we do."""
    patient = tmp_path_factory.mktemp("patient")
    (patient / "sitecustomize.py").write_text(PATIENT, encoding="utf-8")
    with started(tmp_path, PYTHONPATH=str(patient)) as demo:
        os.kill(demo.workers[0], signal.SIGSTOP)  # this worker will not stop when asked to
        demo.process.terminate()
        while not has_ended(demo.workers[1]):
            time.sleep(0.01)
        demo.process.terminate()
        code, rest = demo.end()
    assert code == 143
    assert "PASS" not in rest
    assert list(tmp_path.iterdir()) == []
    assert all(map(has_ended, demo.workers))


def test_a_worker_that_dies_ends_the_demo_and_is_named(tmp_path: Path) -> None:
    with started(tmp_path) as demo:
        demo.read_until("unique key")
        os.kill(demo.workers[1], signal.SIGKILL)
        code, rest = demo.end()
    accident = f"worker 2 (pid {demo.workers[1]}) was ended by SIGKILL"
    assert code == 6
    assert f"story     this ends the demo: {accident}" in rest
    assert re.search(f"^FAIL  .*{re.escape(accident)}$", rest, re.MULTILINE)
    assert f"of {CHECKS + 1} checks failed" in rest
    assert list(tmp_path.iterdir()) == []
    assert all(map(has_ended, demo.workers))


def test_nobody_works_on_when_the_demo_itself_is_killed(tmp_path: Path) -> None:
    with started(tmp_path) as demo:
        demo.read_until("unique key")
        demo.process.kill()
        deadline = time.monotonic() + PATIENCE
        while not all(map(has_ended, demo.workers)):
            assert time.monotonic() < deadline
            time.sleep(0.01)


SABOTAGE = """
from postroom.worker import crew

run = crew.Crew._run


def ack_and_run(self, delivery):
    delivery.ack()
    return run(self, delivery)


crew.Crew._run = ack_and_run
"""


def test_a_worker_that_acks_before_it_works_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SABOTAGE, encoding="utf-8")
    url = f"sqlite:///{tmp_path}/mine.db"
    said = run("--seconds", "5", "--url", url, code=6, PYTHONPATH=str(tmp_path)).stdout
    failed = "\n".join(line for line in said.splitlines() if line.startswith("FAIL"))
    assert "nothing was lost" in failed
    assert "failed work was retried" in failed
    assert "a poison message became a dead letter" in failed
    assert "accident" not in failed
    with postroom.open(url) as room:
        assert room.queues() == [], "even so, a store of one's own is left as it was found"


# ---- How it is asked for ----------------------------------------------------------------------------


def test_the_help_teaches() -> None:
    text = run("--help", code=0).stdout
    for word in ("--seconds", "--url", "5<=x<=600", "postroom demo --seconds 6 | cat", "Exit codes", "130"):
        assert word in text
    assert "demo" in subprocess.run(
        [*COMMAND[:-1], "--help"], env=CLEAN, capture_output=True, text=True, check=True
    ).stdout  # fmt: skip


@pytest.mark.parametrize("seconds", ["4", "601", "soon"])
def test_seconds_that_make_no_sense_are_a_usage_error(seconds: str) -> None:
    done = run("--seconds", seconds, code=2)
    assert "--seconds" in done.stderr
    assert done.stdout == ""


def test_a_url_without_an_engine_is_one_line() -> None:
    done = run("--url", "carrier-pigeon://coop", code=1)
    assert done.stderr.count("\n") == 1
    assert "carrier-pigeon" in done.stderr


def test_a_store_that_lives_in_one_process_is_refused_in_one_line() -> None:
    done = run("--url", "memory://", code=2)
    assert done.stderr.count("\n") == 1
    assert "sqlite:///" in done.stderr
    assert done.stdout == ""


def test_it_does_not_mix_its_messages_with_those_of_others(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/real.db"
    with postroom.open(url) as room:
        room.queue("payments").put({"amount": 100})
        done = run("--url", url, code=4)
        assert "payments" in done.stderr
        assert room.queue("payments").stats().ready == 1
