"""`postroom celery worker`: Celery's own worker, on the configured store when the app has no broker."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from celery import Celery

import postroom
import postroom.celery

pytestmark = pytest.mark.timeout(240)

COMMAND = [sys.executable, "-m", "postroom.cli", "celery", "worker"]
APP = """
from celery import Celery

app = Celery("shop"{broker})


@app.task(name="note")
def note(path):
    open(path, "x").close()
"""
CLEAN = {name: text for name, text in os.environ.items() if not name.startswith(("POSTROOM_", "CELERY_"))}


@pytest.mark.parametrize("own", [False, True], ids=["configured", "its own"])
def test_it_works_where_the_app_says_and_else_where_it_is_configured(tmp_path: Path, own: bool) -> None:
    configured, mine = f"sqlite:///{tmp_path}/configured.db", f"sqlite:///{tmp_path}/mine.db"
    broker = f', broker="postroom+{mine}"' if own else ""
    (tmp_path / "shop.py").write_text(APP.format(broker=broker), encoding="utf-8")
    sender = Celery(broker=f"postroom+{mine if own else configured}")
    sender.send_task("note", args=[str(tmp_path / "done")])
    postroom.celery.close_offices()
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*COMMAND, "--app", "shop", "--pool", "solo", "--loglevel", "INFO", "-n", "w@shop"],
            cwd=tmp_path, env={**CLEAN, "POSTROOM_URL": configured}, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while not (tmp_path / "done").exists():
            said = (tmp_path / "log").read_text(encoding="utf-8")
            assert process.poll() is None, said
            assert time.monotonic() < end, said
            time.sleep(0.02)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in (tmp_path / "log").read_text(encoding="utf-8")


def test_an_app_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    ran = subprocess.run(
        [*COMMAND, "-A", "nowhere"], cwd=tmp_path, env=CLEAN, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert "--app: there is no Celery app in 'nowhere'" in ran.stderr
