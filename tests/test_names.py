"""docs/reference/names.md: every name on its right-hand side exists, asked of what owns such names."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from kombu.transport import TRANSPORT_ALIASES

from postroom import errors, settings
from postroom.breaker import Breaker
from postroom.celery import options
from postroom.celery.events import EventsApp
from postroom.celery.events import settings as event_settings
from postroom.cli.app import app
from postroom.engines.redis.names import Names
from postroom.http import app as http_app
from postroom.logs import Event
from postroom.telemetry.exporter import RoomCollector
from postroom.worker import Worker
from tests.door.staging import room_on

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "names.md"
DASHBOARD = Path(__file__).parents[1] / "src" / "postroom" / "dashboard"


class Row(NamedTuple):
    there: str
    here: str
    kind: str
    note: str


def rows() -> list[Row]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [Row(*each) for each in cells if each[0] != "there"]


# ---- Those who know which names there are ----------------------------------------------------------


def in_python(name: str) -> bool:
    """A module, or what can be reached from one by its attributes."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        return all((found := getattr(found, part, None)) is not None for part in parts[cut:])
    return False


def is_option(name: str) -> bool:
    """The transport warns about every option that it does not know."""
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(getattr(record, "event", ""))  # type: ignore[method-assign]  # a handler in one line
    options.log.addHandler(handler)
    try:
        options.read({name: None})
    finally:
        options.log.removeHandler(handler)
    return "celery.option_unknown" not in heard


def is_command(name: str) -> bool:
    command: Any = typer.main.get_command(app)
    for word in name.removeprefix("postroom ").split():
        command = getattr(command, "commands", {}).get(word)
    return command is not None and name.startswith("postroom ")


def is_control_command(name: str) -> bool:
    import_module("postroom.celery.control")
    return name in import_module("celery.worker.control").Panel.data


def is_management_command(name: str) -> bool:
    return in_python(f"postroom.django.management.commands.{name}.Command")


@cache
def metrics() -> set[str]:
    """Of a room in which everything has happened that makes a metric appear."""
    with room_on() as room:
        room.queue("q").put(1)
        families = list(RoomCollector(room.engine, "1", 1_000).collect())
    return {f"{family.name}_total" if family.type == "counter" else family.name for family in families}


def argument_of(cls: type) -> set[str]:
    return set(inspect.signature(cls).parameters)


def is_of_a_worker(name: str) -> bool:
    with room_on() as room:
        return name in argument_of(Worker) or hasattr(Worker(room, {}), name)


def is_of_an_event_app(name: str) -> bool:
    return name in inspect.signature(event_settings.read).parameters or name in argument_of(EventsApp)


@cache
def is_route(name: str) -> bool:
    """As the server's own document has them."""
    method, _, path = name.partition(" ")
    with room_on() as room:
        document: Any = http_app(room, keeper=False).openapi_schema.to_schema()  # type: ignore[attr-defined]
    return method.lower() in document["paths"].get(path, {})


def error_codes(root: type[errors.PostroomError]) -> set[str]:
    return {root.code}.union(*(error_codes(child) for child in root.__subclasses__()))


KEYS = {key.decode().removeprefix("p:{q}:") for key in Names("p").queue("q")}

KNOWS: dict[str, Callable[[str], bool]] = {
    "Python": in_python,
    "scheme": TRANSPORT_ALIASES.__contains__,
    "option": is_option,
    "setting": lambda name: name in settings.TOP_LEVEL,
    "queue": lambda name: name in settings.QUEUE_LEVEL,
    "role": lambda name: name in settings.ROLE_LEVEL,
    "command": is_command,
    "control command": is_control_command,
    "management command": is_management_command,
    "key": KEYS.__contains__,
    "event": lambda name: name in set(Event),
    "error": lambda name: name in error_codes(errors.PostroomError),
    "metric": lambda name: name in metrics(),
    "worker": is_of_a_worker,
    "breaker": lambda name: name in argument_of(Breaker),
    "event app": is_of_an_event_app,
    "variable": lambda name: name in vars(event_settings).values(),
    "route": is_route,
    "page": lambda name: (DASHBOARD / "pages" / f"{name}.js").exists(),
}


# ---- The page --------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.there[:40])
def test_what_a_name_is_called_here_exists(row: Row) -> None:
    if row.here == "–":
        assert row.note and not row.kind, "say why nothing has taken its place"
        return
    names = re.findall(r"`([^`]+)`", row.here)
    assert names and ", ".join(f"`{name}`" for name in names) == row.here
    assert [name for name in names if not KNOWS[row.kind](name)] == []


@pytest.mark.parametrize("kind", KNOWS)
def test_a_name_that_does_not_exist_is_found_out(kind: str) -> None:
    assert not KNOWS[kind]("postroom nonsense")
    assert not KNOWS[kind]("postroom.model.Nonsense")
    assert not KNOWS[kind]("nonsense")


def test_every_kind_of_name_is_on_the_page() -> None:
    assert {row.kind for row in rows()} - {""} == set(KNOWS)
    assert len(rows()) > 160
