"""Commands that take something of the reader's for granted: the app of a service, a server behind a name."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import postroom
from tests.cli.shell import Shell
from tests.docs.blocks import commands, of
from tests.http.servers import serving

APP = """
import os

from postroom.celery.events import events_app

app = events_app("billing", broker_url="postroom+" + os.environ["POSTROOM_URL"])


@app.handler("shop.order.placed")
def bill(number): ...
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/page.db"


def shown(page: str, word: str) -> str:
    """The one block of this page that has this word."""
    (text,) = (block.text for block in of("sh", f"docs/how-to/{page}") if word in block.text)
    return text


def run(shell: Shell, url: str, text: str) -> Iterator[str]:
    """What each command of ours says; a person would be asked by some of them, and say yes."""
    for program, *args in commands(text):
        if program == "postroom":
            yes = ["--yes"] if args[1] in ("replay", "discard") else []
            yield shell.run(*args, *yes, POSTROOM_URL=url).stdout


def test_the_archive_of_a_service_is_worked_on(tmp_path: Path, url: str) -> None:
    shell = Shell(tmp_path)
    shell.write(APP, "billing.py")
    with postroom.open(url) as room:
        queue = room.queue("billing.v1.event.shop.order.placed")
        queue.put([[7], {}, {}], kind="shop.order.placed")
        delivery = queue.claim(timeout=0)
        assert delivery
        delivery.bury(LookupError("no such customer"))
        text = shown("events-between-services.md", "--service")
        (groups,) = run(shell, url, text.splitlines()[0])
        told = [*run(shell, url, text.replace("3fb2", groups.splitlines()[1].split()[0]))]
        assert "no such customer" in told[1]
        (again,) = queue.find("ready").entries
        assert told[2].split() == [again.id]
        assert queue.stats().dead == 1, "it is not older than five days"


def test_a_reason_goes_into_the_audit(tmp_path: Path, url: str) -> None:
    shell = Shell(tmp_path)
    made = shell.run("token", "create", "ada", "--role", "admin", POSTROOM_URL=url).stdout
    (token,) = re.findall(r"pr_[\w-]+", made)
    with postroom.open(url) as room, serving(url, tmp_path) as served:
        room.queue("emails").put(1)
        text = shown("secure-the-server.md", "curl").replace("$TOKEN", token)
        text = text.replace("https://jobs.example.org", served.address)
        for program, *args in commands(text):
            if program == "curl":
                subprocess.run(["curl", "--silent", "--fail", *args], check=True)
        assert room.queue("emails").stats().ready == 0
        (tail,) = run(shell, url, text)
    assert "ticket 4711" in tail
