"""docs/reference/names.md: every name of the specification is there, and what it is called here exists.

What exists is asked of what owns such names; what the specification names is read out of its documents.
"""

from __future__ import annotations

import inspect
import logging
import re
from ast import literal_eval
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import typer
from kombu.transport import TRANSPORT_ALIASES

from postroom import errors, settings
from postroom.breaker import Breaker
from postroom.celery import options
from postroom.celery.events import EventsApp
from postroom.celery.events import settings as event_settings
from postroom.cli.app import app
from postroom.engines.redis import urls
from postroom.engines.redis.names import Names
from postroom.http import app as http_app
from postroom.logs import Event
from postroom.telemetry.exporter import RoomCollector
from postroom.worker import Worker
from tests.door.staging import room_on

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "names.md"
DASHBOARD = Path(__file__).parents[1] / "src" / "postroom" / "dashboard"
#: The five documents lie beside a checkout, and are no part of it.
SPEC = Path(__file__).parents[2] / "shared" / "spec"


class Row(NamedTuple):
    there: str
    here: str
    kind: str
    note: str


def rows(part: int | None = None) -> list[Row]:
    """Those of the whole page, or of the part about one document."""
    text = PAGE.read_text(encoding="utf-8")
    text = text if part is None else text.split("\n## ")[part]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
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


# ---- The left-hand side ----------------------------------------------------------------------------

#: What stands in the documents like a name, and is none: nobody who comes from there looks it up.
NO_NAMES = {
    "values, and what commands and options are given": """
        None False true json MIN BLOCK COUNT STREAMS LIMIT numkeys -inf GROUP members""",
    "local variables of sample code and of scripts": """
        KEYS ARGV now headers interval eta_timestamp visible_at current_ms timestamp_ms now_ms now_sec
        time_result timeout_ms score_time_ms queue_score new_queue_at queue_key queue_name total_requeued
        message_key message_id message_list payload_json payload_with_redelivered ready_at_ts redis_queue
        redis_package_available scheduled_heap ready_heap_size scheduled_heap_size total_queued_jobs
        shutdown_flag exception_class_name""",
    "private parts, with nothing that anybody sets, asks for or reads": """
        __init__ get connect parse_response _bzmpop_read _xread_read _deliver _fanout_tags _next_delivery_tag
        _remove_from_indices _restore_message_lua _stream_offsets conf step consumer""",
    "files, modules, projects, and what belongs to Python": """
        signals bootstep AMQP RabbitMQ SSE Celery Celery-AMQP-Events kombu config_from_object Exception
        threading RLock Condition redis pip install python""",
    "what samples call their own tasks, apps, hosts and ids": """
        my_task broadcast_task event_name object_name even_number_generated on_even_number_generated
        number_is_even your_service msg_123 MATCHED localhost host obsidian_backend send_webhook
        webhook_client""",
    "methods of AMQP, which are Celery's to call": "basic publish",
    "words of the text and of its drawings": """
        s N M WITH WITHOUT FIFO NOT BACKEND FRONTEND REDIS MESSAGE REQUEUED DLQ PEL""",
}  # fmt: skip
_NONE = {word for words in NO_NAMES.values() for word in words.split()}
_OPTION = r"(?<![\w-])--?[A-Za-z][\w-]*"
_WORD = re.compile(rf"{_OPTION}|[A-Za-z_]\w*(?:-\w+)*")


def ticked(text: str) -> set[str]:
    """The words of what stands in backticks; of a file without its ending."""
    codes = (code.replace(".py", "") for code in re.findall(r"`([^`\n]+)`", text))
    return {word for code in codes for word in _WORD.findall(code)}


def named_in(document: str) -> set[str]:
    """What a document names: in backticks, in a table's first column, or by its shape, in code too.

    By its shape a name is an option (`--queue`), a word_with_underscores, in CAPITALS as a variable or a
    command of Redis, a key or an argument in code, or a {part} of a command.
    """
    parts = re.split(r"^ *```(\w*).*$", document, flags=re.MULTILINE)
    prose, code = "\n".join(parts[::4]), "\n".join(parts[2::4])
    commands = "\n".join(block for kind, block in zip(parts[1::4], parts[2::4], strict=True) if not kind)
    shapes = [
        (document, rf"({_OPTION})"), (document, r"\b(\w*[A-Za-z]_\w*|_[a-z]\w*)\b"),
        (document, r"^\| \**([a-z]+)\** \|"), (document, r"\w\{(\w+)\} \|"),
        (prose, r"\b([A-Z]{4,})\b"), (code, r"\b([A-Z]{3,})\b"), (commands, r"\{(\w+)\}"),
        (code, r"""["'](\w+)["']:"""), (code, r"[(,] *(\w+)=[^=]"),
    ]  # fmt: skip
    return ticked(prose).union(*(re.findall(shape, text, re.MULTILINE) for text, shape in shapes))


@cache
def documents() -> dict[int, str]:
    """The five documents by their numbers, which are those of the page's parts."""
    if not SPEC.is_dir():
        pytest.skip(f"the documents of the specification are not in {SPEC}")
    return {int(path.name[0]): path.read_text(encoding="utf-8") for path in SPEC.glob("[1-5]-*.md")}


def left(part: int | None = None) -> set[str]:
    """What the page names on its left, of all documents or of one."""
    return {word for row in rows(part) for word in ticked(row.there)}


@pytest.mark.parametrize("part", range(1, 6))
def test_no_name_of_a_document_is_left_out(part: int) -> None:
    assert named_in(documents()[part]) - _NONE - left(part) == set()


@pytest.mark.parametrize("part", range(1, 6))
def test_a_name_from_elsewhere_is_one_of_its_document(part: int) -> None:
    assert left(part) - set(_WORD.findall(documents()[part])) == set()


def test_what_is_no_name_is_in_a_document_and_not_on_the_page() -> None:
    assert {name for text in documents().values() for name in named_in(text)} >= _NONE
    assert left() & _NONE == set()


# ---- Defaults --------------------------------------------------------------------------------------

#: Of each option of the transport: its default there, here, and what the page says where they differ.
DEFAULTS: dict[str, tuple[object, object, str]] = {
    "visibility_timeout": (300, 60, "300 s there, 60 s here"),
    "message_ttl": (259_200, None, "3 days there, off here"),
    "health_check_interval": (25, 25, ""),
    "stream_maxlen": (10_000, 10_000, ""),
    "max_connections": (10, 10, ""),
    "polling_interval": (10, 10, ""),
    "global_keyprefix": ("", "postroom", "empty there, `postroom` here"),
    "fanout_prefix": (True, True, ""),
    "fanout_patterns": (True, True, ""),
    "socket_timeout": (None, 5, "none there, 5 s here"),
    "socket_connect_timeout": (None, 2, "none there, 2 s here"),
    "socket_keepalive": (None, True, "none there, on here"),
    "retry_on_timeout": (None, False, "none there, off here"),
    "client_name": (None, None, ""),
    "ssl": (False, False, ""),
}


def defaults() -> dict[str, object]:
    """Of the transport's own options, and of those that go into the URL of a Redis."""
    ours, url = options.read({}), urls.read(urlsplit("redis://host"))
    mine = {
        "visibility_timeout": ours.lease / 1_000,
        "message_ttl": ours.message_ttl,
        "stream_maxlen": ours.stream_maxlen,
        "polling_interval": ours.polling_interval / 1_000,
        "fanout_prefix": ours == options.read({"fanout_prefix": True}),
        "fanout_patterns": ours.fanout_patterns,
        "global_keyprefix": url.prefix,
        "ssl": url.tls is not None,
    }
    return {name: mine[name] if name in mine else getattr(url, name) for name in DEFAULTS}


def test_the_defaults_of_the_transport() -> None:
    assert defaults() == {name: here for name, (_, here, _) in DEFAULTS.items()}


@pytest.mark.parametrize("option", DEFAULTS)
def test_a_default_that_differs_is_told(option: str) -> None:
    there, here, told = DEFAULTS[option]
    (row,) = [row for row in rows(1) if (row.here, row.kind) == (f"`{option}`", "option")]
    assert bool(told) == (there != here)
    assert row.note.startswith(told)


def test_the_table_of_the_specification_has_these_defaults() -> None:
    table = re.findall(r"^\| \*\*(\w+)\*\* \| `([^`]+)`", documents()[1], re.MULTILINE)
    assert {name: literal_eval(text) for name, text in table} == {
        name: there for name, (there, _, _) in DEFAULTS.items()
    }
