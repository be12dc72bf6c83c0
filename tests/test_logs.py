"""What the library logs: a constant message, and in `extra` what programs want to know of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "postroom"
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def calls(source: str) -> Iterator[ast.Call]:
    """Every call of a module's `log`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "_log"), attr=level)) if (
                level in LEVELS
            ):
                yield node


def wrong(source: str) -> list[str]:
    found = []
    for call in calls(source):
        assert isinstance(call.func, ast.Attribute)
        message = call.args[1 if call.func.attr == "log" else 0]
        extra = next((keyword.value for keyword in call.keywords if keyword.arg == "extra"), None)
        if not isinstance(message, ast.Constant):
            found.append(f"line {call.lineno}: the message is not constant")
        if extra is None or (isinstance(extra, ast.Dict) and "event" not in _keys(extra)):
            found.append(f"line {call.lineno}: extra names no event")
    return found


def _keys(extra: ast.Dict) -> set[object]:
    """The keys that are written down; whatever comes in by ** has its own."""
    return {key.value if isinstance(key, ast.Constant) else "event" for key in extra.keys}


def test_messages_are_constant_and_name_their_event() -> None:
    files = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    assert sum(1 for source in files.values() for _ in calls(source)) > 50
    found = {
        str(path.relative_to(PACKAGE)): faults for path, text in files.items() if (faults := wrong(text))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("line", "faults"),
    [
        ('log.info("done", extra={"event": "x.done"})', 0),
        ('log.log(level, "done: %s", 1, extra=extra)', 0),
        ('log.info("done")', 1),
        ('log.info("done", extra={"queue": "q"})', 1),
        ('_log.error(f"done: {1}", extra={"event": "x.done"})', 1),
    ],
)
def test_what_is_wrong_would_be_noticed(line: str, faults: int) -> None:
    assert len(wrong(line)) == faults
