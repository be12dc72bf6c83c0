"""The page about systemd: its units are read by systemd, and a systemd of our own does what it says."""

from __future__ import annotations

import configparser
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.config import load
from tests.docs.blocks import Block, of
from tests.docs.shell import read_postroom
from tests.docs.systemd import Machine, is_possible, machine
from tests.redis.servers import until

PAGE = "docs/how-to/run-under-systemd.md"
UNITS = of("ini", PAGE)
#: What the page takes for granted: its reader has handlers.
HANDLERS = """
from pathlib import Path

import postroom

handlers = postroom.Handlers()


@handlers.handle(queue="emails")
def send(delivery):
    Path("/var/lib/shop/sent").write_text(delivery.body["to"])


@handlers.handle(queue="reports")
def report(delivery): ...
"""
WORKER = "postroom-worker@fast"


def unit(block: Block) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their capitals
    parser.read_string(block.text)
    return parser


@pytest.mark.parametrize("block", UNITS, ids=lambda block: Path(block.file).name)
def test_systemd_takes_the_units(block: Block, tmp_path: Path) -> None:
    """As they stand, but for a program and a user that this machine has."""
    text = block.text.replace("/srv/shop/.venv/bin/postroom", "/bin/true").replace("User=shop", "User=daemon")
    file = tmp_path / Path(block.file).name.replace("@.", "@fast.")
    file.write_text(text.replace("/srv/shop", str(tmp_path)), encoding="utf-8")
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(file)],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")


def test_what_units_start_and_how_long_they_wait(tmp_path: Path) -> None:
    (matrix,) = of("toml", PAGE)
    (tmp_path / "postroom.toml").write_text(matrix.text, encoding="utf-8")
    role = load(tmp_path / "postroom.toml", environ={}).role("fast")
    worker, server = map(unit, UNITS)
    for each, command in ((worker, "worker"), (server, "serve")):
        assert read_postroom(each["Service"]["ExecStart"].split()[1:]) == [command]
    assert worker.getint("Service", "TimeoutStopSec") * 1_000 > role.stop_timeout
    assert server.getint("Service", "TimeoutStopSec") > 10, "what a server gives its requests"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Machine]:
    """A machine with the files of the page, on which its commands were given."""
    if not is_possible():
        pytest.skip("a systemd of its own needs root, and namespaces that are allowed")
    (script,) = of("sh", PAGE)
    files = {f"/{block.file}".replace("//", "/"): block.text for block in (*UNITS, *of("toml", PAGE))}
    with machine(tmp_path, files | {"/srv/shop/shop/jobs.py": HANDLERS}, "shop") as host:
        host.run(script.text)
        yield host


def test_workers_and_server_run_come_back_and_stop(host: Machine) -> None:
    until(lambda: {"fast", "heavy"} <= set(look(host, "worker ls").split()), "not all workers are there")
    until(lambda: host.does("curl --silent --fail http://127.0.0.1:8025/readyz"), "nobody serves")

    look(host, """message put emails '{"to": "ada"}'""")
    until(lambda: host.does("grep ada /var/lib/shop/sent"), "nobody works")

    killed = pid(host)
    host.run(f"systemctl kill --signal=KILL {WORKER}")
    until(lambda: pid(host) not in {"0", killed}, "a killed worker does not come back")
    until(lambda: f":{pid(host)}/fast" in look(host, "worker ls"), "nor does it work")

    again = pid(host)
    host.run("systemctl stop 'postroom-*'")
    assert host.run("systemctl --failed --plain --no-legend") == "", "killed, or stopped with an error"
    assert f":{again}/fast" not in look(host, "worker ls"), "it was stopped, and did not say so"


def look(host: Machine, args: str) -> str:
    """As the page says: root would take the file away from the workers."""
    return host.run(f"runuser -u shop -- postroom {args}")


def pid(host: Machine) -> str:
    return host.run(f"systemctl show --property=MainPID --value {WORKER}").strip()
