"""A real PostgreSQL for tests: on a socket in a folder of its own, gone afterwards.

It is usable when its `with` begins and stopped when it ends, and dies with the process that started it.
PostgreSQL refuses to run as root, so there it runs as the user that Debian's package made, or as nobody.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

_PATIENCE = 60.0
_DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
#: What is lost in a power cut does not matter here; what a killed client leaves does.
_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=16MB")


class Postgres:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def url(self) -> str:
        """For SQLAlchemy with psycopg."""
        return f"postgresql+psycopg://postroom@/postgres?host={self.folder}"

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(host=str(self.folder), user="postroom", dbname="postgres")


@contextmanager
def running(*wanted: str) -> Iterator[Postgres]:
    """With these settings; without any, as fast as tests like it."""
    folder = Path(tempfile.mkdtemp(prefix="postroom-pg-"))
    process: subprocess.Popen[bytes] | None = None
    try:
        as_user = _as_user(folder)
        programs = _programs()
        data = folder / "data"
        owner = ("-U", "postroom", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        made = subprocess.run(
            [*as_user, programs / "initdb", "-D", data, *owner],
            cwd=folder,
            capture_output=True,
            check=False,
            text=True,
        )
        assert made.returncode == 0, made.stderr
        settings = [part for setting in (*(wanted or _FAST), "listen_addresses=") for part in ("-c", setting)]
        with (folder / "server.log").open("wb") as log:
            process = subprocess.Popen(
                [*as_user, programs / "postgres", "-D", data, "-k", folder, *settings],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        server = Postgres(folder)
        _until_it_answers(server, process)
        yield server
    finally:
        if process is not None:
            _stop(process)
        shutil.rmtree(folder, ignore_errors=True)


def _as_user(folder: Path) -> list[str]:
    """What to begin a command with, so that it runs as somebody who may, and owns this folder."""
    if os.geteuid() != 0:
        return [*_DIES_WITH_US, "--"]
    users = {user.pw_name: user for user in pwd.getpwall()}
    user = users.get("postgres") or users["nobody"]
    os.chown(folder, user.pw_uid, user.pw_gid)
    who = ("--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups")
    return [*_DIES_WITH_US, *who, "--"]


def _programs() -> Path:
    """Debian keeps each version in a folder of its own, outside of the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    assert found, "postgresql is missing: run tools/setup"
    return found[-1]


def _until_it_answers(server: Postgres, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        said = (server.folder / "server.log").read_text(encoding="utf-8", errors="replace")[-2_000:]
        assert process.poll() is None, f"postgres did not start: {said}"
        try:
            server.connect().close()
            return
        except psycopg.OperationalError:
            assert time.monotonic() < end, f"postgres does not answer: {said}"
            time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)  # ends every session, and then itself
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
