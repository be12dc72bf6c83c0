"""Writes those parts of the reference that the code knows: options, routes, settings, metrics, errors, keys.

`make reference` writes them, and a test says when they are not what the code says. A page that is made whole
is a function of `WHOLE`; a part of a page, between two comments, is one of `PARTS`. A table below a comment
is one of `FACTS`: which rows there are and their first cells are the code's, the words beside them people's.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

import postroom
from postroom import cli, errors, settings
from postroom.cli.app import app as command_line
from postroom.engines.redis.names import Names
from postroom.http.auth import Access
from postroom.http.problems import STATUSES
from postroom.http.roles import ACTIONS, RIGHTS, Role
from postroom.http.security import secured
from postroom.telemetry.exporter import RoomCollector

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
MADE = "Made from the code by `make reference`; a test says when it is not up to date."


def row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


# ---- The command line ------------------------------------------------------------------------------


def every_command(command: Any, name: str = "postroom") -> Iterator[tuple[str, Any]]:
    """As in `postroom --help`; a group that works by itself is a command too."""
    below: dict[str, Any] | None = getattr(command, "commands", None)
    if below is None or command.invoke_without_command:
        yield name, command
    for word, child in (below or {}).items():
        yield from every_command(child, f"{name} {word}")


def options() -> str:
    lines = [
        "# Every option", "",
        f"What each command takes. [The command line](cli.md) tells what they do. {MADE}", "",
        "Every command has `--help`.",
    ]  # fmt: skip
    for name, command in every_command(typer.main.get_command(command_line)):
        first = (command.help or "").strip().splitlines()[0]
        lines += ["", f"## `{name}`", "", first, ""]
        shown = [
            param for param in command.params if not getattr(param, "hidden", False) and param.name != "help"
        ]
        if shown:
            lines += ["| takes | meaning | unless given |", "|---|---|---|", *map(_option, shown)]
        else:
            lines.append("Takes nothing.")
    return "\n".join(lines) + "\n"


def _option(param: Any) -> str:
    if param.param_type_name == "argument":
        taken = f"`{(param.metavar or param.name).upper()}`"
    else:
        value = "" if param.is_flag else f" {_value(param)}"
        taken = ", ".join(f"`{word}{value}`" for word in (*param.opts, *param.secondary_opts))
    again = ", repeatable" if getattr(param, "multiple", False) and "repeatable" not in param.help else ""
    default = param.default
    plain = default in (None, False, "") or callable(default) or default == []
    return row(
        taken,
        f"{param.help.rstrip('.')}{again}",
        "must be given" if param.required else "" if plain else f"`{default}`",
    )


def _value(param: Any) -> str:
    """What stands behind an option: its name, what there is to choose from, or its bounds."""
    if param.metavar:
        return str(param.metavar)
    if isinstance(param.default, enum.Enum):
        return "|".join(type(param.default))
    least, most = getattr(param, "min", None), getattr(param, "max", None)
    return "VALUE" if least is None or most is None else f"{least}-{most}"


# ---- HTTP ------------------------------------------------------------------------------------------


def server() -> tuple[dict[str, Any], dict[tuple[str, str], str]]:
    """Its OpenAPI document, and what each method of each path does."""
    with postroom.open("memory://") as room:
        made = secured(room, Access(required=True), keeper=False)
        return made.openapi_schema.to_schema(), _actions(made)


def routes() -> str:
    document, actions = server()
    lines = [
        "# Every route", "",
        "What the server answers to, with the right that each route asks for and the least role that has it.",
        f"[HTTP](http.md) tells how to use them; `/api/v1/schema/openapi.json` has every field. {MADE}", "",
        "| request | right | role | takes | does |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            right = RIGHTS[actions[method, path]]
            role = next((role.value for role in Role if right in ACTIONS[role]), "")
            public = right.value == "public"
            takes = [*_parameters(operation), *_fields(operation, document)]
            does = (operation.get("description") or operation["summary"]).split("\n\n")[0].replace("\n", " ")
            lines.append(
                row(
                    f"`{method.upper()} {path}`",
                    "" if public else f"`{right}`",
                    "" if public else role,
                    ", ".join(takes),
                    does,
                )
            )
    return "\n".join(lines) + "\n"


def _actions(made: Any) -> dict[tuple[str, str], str]:
    return {
        (method.lower(), route.path_format): handler.opt["action"]
        for route in made.routes
        for handler in getattr(route, "route_handlers", [])
        for method in handler.http_methods
        if "action" in handler.opt
    }


def _parameters(operation: dict[str, Any]) -> list[str]:
    """Of the query and the headers: those of the path stand in it."""
    marks = {"query": "`?{}`", "header": "`{}:`"}
    return [
        marks[each["in"]].format(each["name"])
        for each in operation.get("parameters", [])
        if each["in"] in marks
    ]


def _fields(operation: dict[str, Any], document: dict[str, Any]) -> list[str]:
    content = (
        operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    )
    for each in (content, *content.get("oneOf", []), *content.get("anyOf", [])):
        if "$ref" in each:
            named = document["components"]["schemas"][each["$ref"].rpartition("/")[2]]
            return [f"`{name}`" for name in named.get("properties", {})]
    return []


# ---- Errors ----------------------------------------------------------------------------------------


def doors() -> str:
    lines = ["| code | over HTTP | exit code of a command |", "|---|---|---|"]
    for error in _tree(errors.PostroomError):
        if not issubclass(error, errors.Verdict) or error is errors.InProgress or error is errors.BreakerOpen:
            status = str(_of(error, STATUSES)) + (
                ", or 410 when the message is gone" if error is errors.LeaseLost else ""
            )
            lines.append(row(f"`{error.code}`", status, str(_of(error, cli.EXIT_CODES))))
    return "\n".join(lines) + "\n"


def statuses() -> str:
    """The same from the other side: by status."""
    codes: dict[int, list[str]] = {}
    for code, status in STATUSES.items():
        codes.setdefault(status, []).append(f"`{code}`")
    codes.setdefault(410, []).append("`lease_lost` with `outcome` `gone`")
    lines = ["| status | codes |", "|---|---|"]
    lines += [row(str(status), ", ".join(names)) for status, names in sorted(codes.items()) if status != 500]
    return "\n".join(lines) + "\n"


def tree() -> str:
    """What derives from what, as text."""
    return (
        "\n".join(["```text", errors.PostroomError.__name__, *_branches(errors.PostroomError), "```"]) + "\n"
    )


def _branches(error: type[errors.PostroomError], before: str = "") -> Iterator[str]:
    children = [child for child in error.__subclasses__() if child.__module__ == errors.__name__]
    for child in children:
        last = child is children[-1]
        builtin = [base.__name__ for base in child.__bases__ if not issubclass(base, errors.PostroomError)]
        also = f" (also a {builtin[0]})" if builtin else ""
        yield f"{before}{'└' if last else '├'}── {child.__name__}{also}"
        yield from _branches(child, before + ("    " if last else "│   "))


def codes() -> Facts:
    return [(f"`{error.code}`", f"`{error.__name__}`") for error in _tree(errors.PostroomError)]


def _tree(error: type[errors.PostroomError]) -> Iterator[type[errors.PostroomError]]:
    yield error
    for child in error.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _tree(child)


def _of(error: type[errors.PostroomError], table: dict[str, int]) -> int:
    """Its own row, or that of its parent."""
    codes = (getattr(kind, "code", "") for kind in error.__mro__)
    return next(table[code] for code in codes if code in table)


# ---- What people explain: settings, metrics, keys --------------------------------------------------

Facts = list[tuple[str, ...]]
#: Where nobody has said yet what a row is about.
UNSAID = "**not explained yet**"


def settings_of(*names: str) -> Facts:
    return [(f"`{name}`", f"`{_written(settings.DEFAULTS[name])}`") for name in names]


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {each}' for name, each in value.items())} }}"
    if value is None:
        return settings.OFF
    return str(value).lower() if isinstance(value, bool) else str(value)


def settings_in(table: str) -> Facts:
    """Those of a table of the file; "": those at its top."""
    place = {
        name: next((word for word in settings.TABLES if name.startswith(f"{word}_")), "")
        for name in settings.ROOM
    }
    return settings_of(*(name for name in settings.ROOM if place[name] == table))


def metrics() -> Facts:
    with postroom.open("memory://") as room:
        room.queue("q").put(1)
        families = list(RoomCollector(room.engine, "1", 1_000).collect())
    return [
        (
            f"`{family.name}{'_total' if family.type == 'counter' else ''}`",
            family.type,
            ", ".join(f"`{label}`" for label in vars(family)["_labelnames"]),
        )
        for family in families
    ]


def keys_of_a_queue() -> Facts:
    return [(f"`{key.decode()}`",) for key in Names("postroom").queue("QUEUE")]


def keys_of_the_room() -> Facts:
    names = Names("postroom")
    keys = (names.registry, names.topics, *names.topic("TOPIC"), *names.records("KIND"))
    return [(f"`{key.decode()}`",) for key in keys]


def explained(table: list[str], facts: Facts) -> list[str]:
    """The table again: rows and their first cells by the code, the other cells and the order as they are."""
    words = {cells[0]: cells for cells in map(_cells, table[2:])}
    known = {fact[0]: fact for fact in facts}
    order = [*filter(known.__contains__, words), *(name for name in known if name not in words)]
    width = len(_cells(table[0]))
    rows = []
    for name in order:
        fact = known[name]
        kept = words.get(name, [UNSAID] * width)[len(fact) :]
        rows.append(f"| {' | '.join([*fact, *kept])} |".replace("|  |", "| |"))
    return [*table[:2], *rows]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


# ---- Pages -----------------------------------------------------------------------------------------

WHOLE: dict[str, Callable[[], str]] = {"options.md": options, "routes.md": routes}
PARTS: dict[tuple[str, str], Callable[[], str]] = {
    ("errors.md", "tree"): tree,
    ("errors.md", "doors"): doors,
    ("http.md", "statuses"): statuses,
}
FACTS: dict[tuple[str, str], Callable[[], Facts]] = {
    ("config.md", "room"): lambda: settings_in(""),
    ("config.md", "idempotency"): lambda: settings_in("idempotency"),
    ("config.md", "http"): lambda: settings_in("http"),
    ("config.md", "queue"): lambda: settings_of(*settings.POLICY),
    ("metrics.md", "metrics"): metrics,
    ("redis-keys.md", "queue"): keys_of_a_queue,
    ("redis-keys.md", "room"): keys_of_the_room,
    ("errors.md", "codes"): codes,
}


def made() -> dict[Path, str]:
    """Every page that is made here, in part or as a whole, as it should be."""
    pages = {REFERENCE / name: make() for name, make in WHOLE.items()}
    for (name, part), make in PARTS.items():
        page = REFERENCE / name
        text = pages.get(page) or page.read_text(encoding="utf-8")
        between = re.compile(rf"(<!-- made: {part} -->\n\n).*?(\n<!-- end -->)", re.DOTALL)
        assert between.search(text), f"{name} has no place for {part}"
        pages[page] = between.sub(lambda found, make=make: found[1] + make() + found[2], text)  # type: ignore[misc]
    for (name, part), facts in FACTS.items():
        page = REFERENCE / name
        text = pages.get(page) or page.read_text(encoding="utf-8")
        table = re.search(rf"(?<=<!-- facts: {part} -->\n\n)(?:\|.*\n)+", text)
        assert table, f"{name} has no table for {part}"
        rows = "\n".join(explained(table[0].splitlines(), facts())) + "\n"
        pages[page] = text[: table.start()] + rows + text[table.end() :]
    return pages


def main() -> None:
    for page, text in made().items():
        page.write_text(text, encoding="utf-8")
        print(f"wrote {page.relative_to(REFERENCE.parents[1])}")


if __name__ == "__main__":
    main()
