"""What the engine says of its file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import postroom
from postroom.cli import UNHEALTHY
from postroom.engines.sqlite import SqliteEngine
from postroom.engines.sqlite.file import File
from postroom.findings import Finding, Level


class Disk(NamedTuple):
    total: int
    free: int


def findings(engine: SqliteEngine) -> dict[str, Finding]:
    return {finding.check: finding for finding in engine.inspect()}


def test_a_new_file_on_a_local_disk_is_fine(tmp_path: Path) -> None:
    with postroom.open(f"sqlite:///{tmp_path}/jobs.db") as room:
        (tmp_path / "jobs.db").chmod(0o600)
        found = {finding.check: finding for finding in room.engine.inspect()}
    assert set(found) == {"version", "file", "durability", "write-ahead log", "filesystem", "disk"}
    assert [finding for finding in found.values() if finding.level is Level.FAIL] == []
    assert found["durability"].text == "journal wal, synchronous full"


def test_a_file_that_everybody_can_read_is_told(tmp_path: Path) -> None:
    with postroom.open(f"sqlite:///{tmp_path}/jobs.db") as room:
        (tmp_path / "jobs.db").chmod(0o644)
        (file,) = [finding for finding in room.engine.inspect() if finding.check == "file"]
    assert file.level is Level.WARN


@pytest.mark.parametrize("name", ["jobs.db", "jobs.db-wal"])
def test_a_store_that_this_user_cannot_write_is_bad(tmp_path: Path, name: str) -> None:
    with postroom.open(f"sqlite:///{tmp_path}/jobs.db") as room:
        room.queue("q").put(1)
        (tmp_path / name).chmod(0o444)
        doctor = [*UNPRIVILEGED, sys.executable, "-m", "postroom.cli", "doctor", "--json"]
        ran = subprocess.run([*doctor, "--url", f"sqlite:///{tmp_path}/jobs.db"], check=False, **OPTIONS)
    found = {each["check"]: each for each in json.loads(ran.stdout)}
    assert found["file"]["level"] == "fail", ran.stdout
    assert f"this user may not write to {tmp_path / name}" in found["file"]["text"]
    assert ran.returncode == UNHEALTHY


OPTIONS: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 60}
#: Root may write to every file, unless that is taken from it.
UNPRIVILEGED = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all") if os.geteuid() == 0 else ()


def test_a_network_filesystem_that_came_later_is_bad(tmp_path: Path) -> None:
    file = File(str(tmp_path / "jobs.db"), mounts="/dev/sda1 / ext4 rw 0 0\n")
    engine = SqliteEngine(file)
    try:
        file._mounts = f"/dev/sda1 / ext4 rw 0 0\nnas:/x {tmp_path} nfs4 rw 0 0\n"
        assert findings(engine)["filesystem"].level is Level.FAIL
    finally:
        engine.close()


@pytest.mark.parametrize(("free", "level"), [(2**20, Level.FAIL), (2**29, Level.WARN), (2**36, Level.OK)])
def test_a_disk_that_fills_up_is_told_before_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: Level
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: Disk(2**38, free))
    with postroom.open(f"sqlite:///{tmp_path}/jobs.db") as room:
        (disk,) = [finding for finding in room.engine.inspect() if finding.check == "disk"]
    assert disk.level is level
