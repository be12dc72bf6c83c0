"""`postroom config`, run as people and scripts run it: as a process."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from postroom import cli, errors, settings
from tests.cli.shell import CLEAN, COMMAND
from tests.cli.shell import Shell as PlainShell


class Shell(PlainShell):
    """A shell that can also pretend to be a terminal."""

    def on_terminal(self, *args: str, **environ: str) -> str:
        """What the command prints when its stdout is a terminal."""
        ours, its = pty.openpty()
        env = CLEAN | {"TERM": "xterm-256color", "COLUMNS": "120"} | environ
        process = subprocess.Popen([*COMMAND, *args], cwd=self.folder, env=env, stdout=its)
        os.close(its)
        output = b""
        try:
            while chunk := os.read(ours, 65_536):
                output += chunk
        except OSError:  # Linux says so when the last writer has closed the terminal
            pass
        finally:
            os.close(ours)
        assert process.wait(timeout=60) == 0
        return output.decode()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def table(output: str) -> dict[str, list[str]]:
    """The rows of the plain table by setting."""
    rows = [re.split(r" {2,}", line) for line in output.splitlines()]
    assert rows[0] == ["setting", "value", "origin"]
    assert {len(row) for row in rows} == {3}
    return {name: rest for name, *rest in rows[1:]}


# ---- show -----------------------------------------------------------------------------------------


def test_in_a_pipe_it_is_plain_aligned_text_with_every_setting(shell: Shell) -> None:
    run = shell.run("config", "show")
    rows = table(run.stdout)
    assert set(rows) == {*settings.DEFAULTS, "heartbeat"}
    assert rows["lease"] == ["30s", "default"]
    assert rows["capacity"] == ["off", "default"]
    assert rows["max_body"] == ["16MB", "default"]
    assert rows["jitter"] == ["true", "default"]
    assert rows["labels"] == ["low = 0, normal = 5, high = 10", "default"]
    assert run.stderr == ""
    assert run.stdout.isascii()
    starts = {
        line.index(value)
        for line, value in zip(run.stdout.splitlines()[1:4], ("sqlite:", "off", "5s"), strict=True)
    }
    assert len(starts) == 1


def test_the_heartbeat_follows_from_the_lease(shell: Shell) -> None:
    assert table(shell.run("config", "show").stdout)["heartbeat"] == ["10s", "derived: lease / 3"]
    shell.write('[queues.slow]\nlease = "15m"')
    rows = table(shell.run("config", "show", "--queue", "slow").stdout)
    assert rows["heartbeat"] == ["5m", "derived: lease / 3"]


def test_each_value_is_shown_with_its_origin(shell: Shell) -> None:
    shell.write("capacity = 5\nlease = 40\n[queues.payouts]\nretries = 6")
    rows = table(shell.run("config", "show", POSTROOM_LEASE="90").stdout)
    assert rows["capacity"] == ["5", "postroom.toml"]
    assert rows["lease"] == ["1m30s", "POSTROOM_LEASE"]
    assert rows["queues.payouts.max_attempts"] == ["7", "postroom.toml [queues.payouts]"]
    assert rows["max_attempts"] == ["3", "default"]


def test_one_queue(shell: Shell) -> None:
    shell.write("capacity = 5\n[queues.payouts]\nretries = 6")
    rows = table(shell.run("config", "show", "--queue", "payouts").stdout)
    assert set(rows) == {*settings.POLICY, *settings.SHARE, *settings.ROUTING, "heartbeat"}
    assert rows["max_attempts"] == ["7", "postroom.toml [queues.payouts]"]
    assert rows["capacity"] == ["5", "postroom.toml"]
    undeclared = table(shell.run("config", "show", "-q", "other").stdout)
    assert undeclared["max_attempts"] == ["3", "default"]


def test_json(shell: Shell) -> None:
    shell.write('lease = "1m"\n[queues.payouts]\nrate = "5/s"', "other.toml")
    shown: dict[str, Any] = json.loads(shell.run("config", "show", "--json", "--config", "other.toml").stdout)
    assert shown["file"] == "other.toml"
    assert shown["settings"]["lease"] == {"value": "1m", "origin": "other.toml"}
    assert shown["settings"]["heartbeat"] == {"value": "20s", "origin": "derived: lease / 3"}
    assert shown["settings"]["capacity"] == {"value": None, "origin": "default"}
    assert shown["settings"]["labels"]["value"] == {"low": 0, "normal": 5, "high": 10}
    assert shown["queues"] == {"payouts": {"rate": {"value": "5/s", "origin": "other.toml [queues.payouts]"}}}
    one = json.loads(shell.run("config", "show", "--json", "-q", "payouts", "-c", "other.toml").stdout)
    assert one["queue"] == "payouts"
    assert one["settings"]["rate"]["origin"] == "other.toml [queues.payouts]"


def test_a_password_is_not_shown(shell: Shell) -> None:
    for options in ((), ("--json",)):
        run = shell.run("config", "show", *options, POSTROOM_URL="redis://:hunter2@host/0")
        assert "redis://:***@host/0" in run.stdout
        assert "hunter2" not in run.stdout + run.stderr


def test_on_a_terminal_it_is_a_drawn_table(shell: Shell) -> None:
    shell.write("[queues.payouts]\nretries = 6")
    output = shell.on_terminal("config", "show")
    assert "───" in output
    assert "\x1b[36m" in output
    assert "postroom.toml [queues.payouts]" in output  # brackets are no markup


def test_no_color_is_respected(shell: Shell) -> None:
    output = shell.on_terminal("config", "show", NO_COLOR="1")
    assert "───" in output
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", output)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_seen_enough_is_no_reason_to_complain(shell: Shell, unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    env = CLEAN | {"PYTHONUNBUFFERED": unbuffered}
    run = subprocess.run(
        [*COMMAND, "config", "show"],
        cwd=shell.folder,
        env=env,
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert run.stderr == b""


ROLES = """
[roles.fast]
queues = ["chat"]
concurrency = 20
[queues.chat]
concurrency = 15
[queues.other]
"""


def test_roles_are_shown_with_their_origins(shell: Shell) -> None:
    shell.write(ROLES)
    rows = table(shell.run("config", "show").stdout)
    assert rows["roles.fast.concurrency"] == ["20", "postroom.toml [roles.fast]"]
    assert rows["roles.fast.prefetch"] == ["off", "default"]
    assert rows["queues.chat.concurrency"] == ["15", "postroom.toml [queues.chat]"]
    shown = json.loads(shell.run("config", "show", "--json").stdout)
    assert shown["roles"]["fast"]["queues"] == {"value": ["chat"], "origin": "postroom.toml [roles.fast]"}


def test_one_role_is_what_its_worker_gets(shell: Shell) -> None:
    shell.write(ROLES)
    rows = table(shell.run("config", "show", "--role", "fast").stdout)
    assert rows["roles.fast.queues"] == ["chat", "postroom.toml [roles.fast]"]
    assert rows["queues.chat.lease"] == ["30s", "default"]
    assert not [name for name in rows if name.startswith("queues.other")]
    shown = json.loads(shell.run("config", "show", "-r", "fast", "--json").stdout)
    assert shown["queues"]["chat"]["concurrency"]["value"] == 15
    assert "there is fast" in shell.run("config", "show", "-r", "slow", code=1).stderr


# ---- check ----------------------------------------------------------------------------------------


def test_check_says_ok(shell: Shell) -> None:
    run = shell.run("config", "check")
    assert run.stdout == "ok\n"
    assert run.stderr == "read no file and the environment\n"
    shell.write('[queues.a]\n[queues.b]\n[schedule.c]\nevery = "1h"\nqueue = "a"')
    talk = "read postroom.toml (queues: 2, roles: 0, schedules: 1) and the environment\n"
    assert shell.run("config", "check").stderr == talk


def test_check_finds_contradictions_and_says_where(shell: Shell) -> None:
    shell.write(
        '[roles.fast]\nqueues = ["chat", "emials"]\n[queues.chat]\n\n[queues.emails]\nlease = "15m"\n'
    )
    run = shell.run("config", "check", code=1)
    assert run.stdout.splitlines() == [
        "postroom.toml:2: error: [roles.fast] queues: 'emials' is no queue of this file"
        " (did you mean emails?)",
        "postroom.toml:5: warning: [queues.emails]: is in no role: nobody started by role works on it"
        " (add it to the queues of a role)",
        "postroom.toml:6: warning: [queues.emails] lease: is 15m, but the work is taken back after its"
        ' ack_timeout, 30s (say visibility_timeout = "15m" if the work may take so long,'
        ' or ack_timeout = "off")',
        "not ok",
    ]
    found = json.loads(shell.run("config", "check", "--json", code=1).stdout)
    assert not found["ok"]
    assert found["findings"][0]["line"] == 2
    assert {finding["severity"] for finding in found["findings"]} == {"error", "warning"}


def test_a_warning_alone_is_ok_unless_one_is_strict(shell: Shell) -> None:
    shell.write('[queues.emails]\nlease = "15m"')
    assert shell.run("config", "check").stdout.endswith("\nok\n")
    assert shell.run("config", "check", "--strict", code=1).stdout.endswith("\nnot ok\n")
    assert json.loads(shell.run("config", "check", "--json").stdout)["ok"]


def test_the_matrix_of_the_marketplace_contradicts_itself_nowhere(shell: Shell) -> None:
    matrix = Path(__file__).parents[2] / "examples" / "marketplace" / "postroom.toml"
    assert shell.run("config", "check", "--strict", "-c", str(matrix)).stdout == "ok\n"


def test_check_knows_which_urls_can_be_opened(shell: Shell) -> None:
    shell.write('url = "redsi://user:secret@host/0"')
    run = shell.run("config", "check", code=1)
    assert "no engine for 'redsi'" in run.stderr
    assert "secret" not in run.stderr


@pytest.mark.parametrize("verb", ["check", "show"])
def test_a_mistake_is_one_line_on_stderr_with_a_hint(shell: Shell, verb: str) -> None:
    shell.write('[queues.payouts]\nleese = "15m"')
    run = shell.run("config", verb, code=1)
    assert run.stdout == ""
    assert run.stderr == (
        "postroom: postroom.toml: [queues.payouts] leese: unknown setting; did you mean lease?"
        " (all settings: postroom config show --help)\n"
    )


def test_a_missing_file_is_an_error(shell: Shell) -> None:
    run = shell.run("config", "check", "--config", "nope.toml", code=1)
    assert run.stderr.startswith("postroom: nope.toml: there is no such file (")
    assert run.stderr.count("\n") == 1


def test_a_wrong_variable_is_an_error(shell: Shell) -> None:
    run = shell.run("config", "check", code=1, POSTROOM_LEESE="1m")
    assert run.stderr.startswith("postroom: POSTROOM_LEESE: unknown setting; did you mean POSTROOM_LEASE?")


# ---- the command itself ---------------------------------------------------------------------------


def test_wrong_usage_is_code_2(shell: Shell) -> None:
    assert "No such option: --jsn" in shell.run("config", "show", "--jsn", code=2).stderr
    assert "No such command 'confg'" in shell.run("confg", code=2).stderr
    assert "queue name: 'a{b}'" in shell.run("config", "show", "-q", "a{b}", code=2).stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["config", "show", "--jsn"], "No such option: --jsn"),
        (["queue", "lss"], "No such command 'lss'."),
        (["queue", "show"], "Missing argument"),
        (["completion"], "Missing argument"),
        (["dead", "ls", "--limit", "none"], "Invalid value for '--limit'"),
    ],
)
def test_wrong_usage_is_one_line_with_a_hint(shell: Shell, args: list[str], says: str) -> None:
    (line,) = shell.run(*args, code=2).stderr.splitlines()
    assert line.startswith(f"postroom: {says}")
    noun = [] if args == ["completion"] else args[:1]
    assert f"(usage: postroom {' '.join(noun)}" in line
    assert line.endswith(" -h)")


def test_a_noun_alone_shows_its_help(shell: Shell) -> None:
    said = shell.run("queue", code=2).stderr
    assert "Usage: postroom queue" in said
    assert "purge" in said


def test_the_version(shell: Shell) -> None:
    assert re.fullmatch(r"postroom \d+\.\d+\S*\n", shell.run("--version").stdout)


def test_help_teaches(shell: Shell) -> None:
    assert "Examples:\n    postroom demo" in shell.run("--help").stdout
    shown = shell.run("config", "show", "-h").stdout
    assert "Examples:" in shown
    words = set(shown.split())
    assert words.issuperset(set(settings.TOP_LEVEL) - {"visibility_timeout", "retries"})
    assert "visibility_timeout" in shown
    assert "retries" in shown


def test_help_is_quick_because_it_loads_only_what_it_needs(shell: Shell) -> None:
    code = (
        "import sys\nfrom postroom.cli import main\n"
        "try: main()\n"
        "finally: print({'rich', 'tomllib', 'asyncio'} & set(sys.modules), file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    assert run.stderr == "set()\n"


def test_without_the_extra_one_line_names_the_pip_command(shell: Shell) -> None:
    hidden = "import sys; sys.modules['typer'] = None; from postroom.cli import main; sys.exit(main())"
    run = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr == (
        "postroom: the command line needs typer, which is not installed: pip install 'postroom[cli]'\n"
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.PostroomError(), 1),
        (errors.ConfigError(), 1),
        (errors.MissingExtra(), 1),
        (errors.QueueFull(), 1),
        (errors.InvalidInput(), 2),
        (errors.BodyTooLarge(), 2),
        (errors.NotFound(), 3),
        (errors.Conflict(), 4),
        (errors.LeaseLost(), 4),
        (errors.EngineUnavailable(), 5),
    ],
)
def test_exit_codes_are_stable(
    error: errors.PostroomError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.complain(error) == code
    assert capsys.readouterr().err.startswith(f"postroom: {error}")


def test_an_error_stays_one_line_whatever_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    cli.complain(errors.PostroomError("first\nsecond\r\n\tthird"))
    assert capsys.readouterr().err == "postroom: first second third\n"
