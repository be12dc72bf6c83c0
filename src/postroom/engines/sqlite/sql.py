"""Loads sqlite.sql: the versions of the schema, and the statements by name."""

from __future__ import annotations

import re
from importlib.resources import files

from postroom.model import State

_BLOCK = re.compile(
    r"^-- (schema|name): (\w+)[^\n]*\n(.*?)(?=^-- (?:schema|name):|\Z)", re.DOTALL | re.MULTILINE
)
_COMMENT = re.compile(r"^--[^\n]*\n", re.MULTILINE)
_FRAGMENT = re.compile(r"\{(\w+)\}")

_blocks = _BLOCK.findall(files(__package__).joinpath("sqlite.sql").read_text(encoding="utf-8"))
_named = {
    name: _COMMENT.sub("", text).strip().removesuffix(";") for what, name, text in _blocks if what == "name"
}

#: The scripts that lead from each version of the file to the next, oldest first.
SCHEMAS: dict[int, str] = {int(name): script for what, name, script in _blocks if what == "schema"}
#: Every statement; `{name}` in one stands for the text of another.
SQL: dict[str, str] = {
    name: _FRAGMENT.sub(lambda part: _named[part[1]], text) for name, text in _named.items()
}


def page_statement(state: State, group: str | None, correlation_id: str | None) -> str:
    """What pages through a state other than ready; only the dead are also found by group or task."""
    if state is State.DEAD and group is not None:
        return "page_group"
    if state is State.DEAD and correlation_id is not None:
        return "page_task"
    return f"page_{state}"
