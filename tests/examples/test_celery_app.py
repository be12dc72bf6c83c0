"""examples/celery_app does what its README says, with its commands, in real processes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redis import servers

pytestmark = pytest.mark.timeout(600)

APP = Path(__file__).parents[2] / "examples" / "celery_app"
PATIENCE = 100.0


@pytest.fixture(params=["sqlite", "redis"])
def environ(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """By default a file; on Redis with one variable."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("POSTROOM_", "SHOP_"))}
    if request.param == "sqlite":
        yield clean | {"PATH": path}
        return
    with servers.single() as server:
        yield clean | {"PATH": path, "SHOP_BROKER": f"postroom+{server.url()}"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(
        APP, tmp_path / "celery_app", ignore=shutil.ignore_patterns("__pycache__", "*.db*")
    )


def commands() -> list[list[str]]:
    """The three commands of the README."""
    block = re.search(r"^```sh\n(.*?)^```", (APP / "README.md").read_text(encoding="utf-8"), re.S | re.M)
    assert block
    return [line.split() for line in block[1].splitlines()]


def run(command: list[str], folder: Path, environ: dict[str, str], until: str = "") -> tuple[int, list[str]]:
    """Its exit code and the lines that its tasks printed; asked to stop after these words."""
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        end = time.monotonic() + PATIENCE
        while process.poll() is None:
            text = log.read_text(encoding="utf-8", errors="replace")
            assert time.monotonic() < end, text
            if until and until in text:
                process.terminate()
                process.wait(PATIENCE)
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    said = [line for line in lines if re.match(r"(sent|packed|reminded|exporting|exported): ", line)]
    return process.returncode, said or lines


def test_three_commands_show_delay_priority_and_recovery(folder: Path, environ: dict[str, str]) -> None:
    order, first, second = commands()
    assert run(order, folder, environ) == (0, ["sent: four parcels, a reminder in 4 s, an export in 6 s"])
    code, said = run(first, folder, environ)
    assert code == -signal.SIGKILL, said
    *packed, reminded, exporting = said
    assert packed == [f"packed: {parcel}" for parcel in ("medicine", "records", "books", "more books")]
    late = re.fullmatch(r"reminded: Ada, (\d+\.\d) s after the order", reminded)
    assert late, reminded
    assert float(late[1]) >= 4
    assert exporting == "exporting: the year, and out of memory"
    code, said = run(second, folder, environ, until="exported: ")
    *again, exported = said
    assert (code, exported) == (0, "exported: the year, after a worker died of it")
    # At least once: of what ended just before its worker did, the worker may not have told.
    assert not again or (len(again) == 1 and again[0].startswith("reminded: Ada"))
    assert (folder / "shop.db").exists() == ("SHOP_BROKER" not in environ)
