"""Command lines as our pages give them: read by the real commands, without being carried out."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import typer
from celery import Celery
from celery.bin.base import CLIContext
from celery.bin.celery import celery

from postroom.cli.app import app
from tools.reference import server

POSTROOM: Any = typer.main.get_command(app)


def read_postroom(args: list[str]) -> list[str]:
    """The words that name the command; an error of the command itself if it does not take these arguments."""
    path, command, rest = _descend(POSTROOM, args)
    context = command.make_context(" ".join(["postroom", *path]), list(rest))
    if path in (["celery", "worker"], ["events", "worker"]):  # what it does not know is for Celery
        read_celery(["worker", *context.args])
    return path


def read_celery(args: list[str]) -> None:
    """What stands before the command (`-A shop`) names an app, which is not there to be loaded."""
    while args[:1] in (["-A"], ["--app"]):
        args = args[2:]
    path, command, rest = _descend(celery, args)
    assert path, args
    context = CLIContext(app=Celery(set_as_current=False), no_color=True, workdir=None)
    command.make_context(" ".join(["celery", *path]), list(rest), obj=context)


@cache
def _routes() -> list[tuple[str, re.Pattern[str]]]:
    actions = server()[1]
    return [(method, re.compile(re.sub(r"\{\w+\}", "[^/]+", path))) for method, path in actions]


def read_request(method: str, path: str) -> None:
    """Whether the server has such a route; a path of the API may leave out where that begins."""
    paths = (path, f"/api/v1{path}")
    found = any(
        asked == method.lower() and route.fullmatch(path) for asked, route in _routes() for path in paths
    )
    assert found, f"there is no {method} {path}"


def read_curl(args: list[str]) -> None:
    given = dict(pairwise(args))
    method = given.get("-X") or ("POST" if "-d" in args else "GET")
    (url,) = (word for word in args if re.match(r"https?://|localhost", word))
    read_request(method, urlsplit(url if "://" in url else f"http://{url}").path)


def _descend(command: Any, args: list[str]) -> tuple[list[str], Any, list[str]]:
    for n, word in enumerate(args):
        below = getattr(command, "commands", {}).get(word)
        if below is None:
            return args[:n], _known(command, args[n:]), args[n:]
        command = below
    return args, _known(command, []), []


def _known(command: Any, rest: list[str]) -> Any:
    """A group that is no command itself was given the name of a command that it does not have."""
    if hasattr(command, "commands") and not command.invoke_without_command and "--help" not in rest:
        raise LookupError(f"no such command: {' '.join(rest)}")
    return command
