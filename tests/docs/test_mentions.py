"""What a sentence names in passing is there: commands with their options, requests, extras."""

from __future__ import annotations

import re
import shlex
import tomllib

import pytest

from postroom.http.assets import FOLDER
from tests.docs.blocks import PAGES, REPO
from tests.docs.shell import POSTROOM, read_postroom, read_request

_FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"`postroom ([a-z][^`]*)`")
_EXTRAS = re.compile(r"'?\b(?:postroom|\.)\[([a-z,]+)\]")
TEXTS = {page: _FENCED.sub("", page.read_text(encoding="utf-8")) for page in PAGES}
_REQUEST = re.compile(r"`(GET|POST|PUT|DELETE) (/[^`?… ]*)[^`]*`")
REQUESTS = sorted({said for text in TEXTS.values() for said in _REQUEST.findall(text)})
MENTIONS = sorted({said for text in TEXTS.values() for said in _COMMAND.findall(text)})
#: In a script: as text, or as text with names in it.
_SHOWN = re.compile(r"""(["`])(postroom [a-z](?:(?!\1).)*)\1""")
SCRIPTS = [script for folder in ("lib", "pages") for script in sorted((FOLDER / folder).rglob("*.js"))]
SHOWN = sorted({said for script in SCRIPTS for _, said in _SHOWN.findall(script.read_text(encoding="utf-8"))})


@pytest.mark.parametrize("said", MENTIONS)
def test_a_command_is_there_with_its_options(said: str) -> None:
    command, words = POSTROOM, said.split()
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    assert command is not POSTROOM
    assert not hasattr(command, "commands") or not words or not words[0].isalpha() or words[0].isupper()
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)} | {
        "--help"
    }
    if not command.ignore_unknown_options:
        assert {word for word in words if re.match(r"--?[a-z]", word)} <= known


@pytest.mark.parametrize("said", SHOWN)
def test_a_command_that_the_dashboard_shows_can_be_run(said: str) -> None:
    _, *args = shlex.split(re.sub(r"\$\{[^{}]*\}", "x", said))
    read_postroom(args)


@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_a_request_is_answered_by_a_route(method: str, path: str) -> None:
    read_request(method, path)


def test_pip_is_asked_for_extras_that_there_are() -> None:
    extras = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    asked = {name for text in TEXTS.values() for found in _EXTRAS.findall(text) for name in found.split(",")}
    assert asked and asked <= set(extras)


def test_nonsense_would_be_found() -> None:
    with pytest.raises(AssertionError):
        read_request("POST", "/queues/{queue}/nonsense")
    for said in ("nonsense", "queue nonsense", "queue ls --nonsense"):
        with pytest.raises(AssertionError):
            test_a_command_is_there_with_its_options(said)
