"""The house rules that no reviewer should have to remember: import direction, names, sizes, error codes.

Modules are named as seen from the package: "model", "engines.memory", and "postroom" for its root.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom import errors

REPO = Path(__file__).parents[1]
PACKAGE = REPO / "src" / "postroom"

MAX_FILE_LINES = 450
MAX_FUNCTION_LINES = 50

# ---- Which module may import which: the one table. ------------------------------------------------
# A row speaks for its module and everything inside it, and may import from there; each name in a set
# stands for everything inside it too. Only "engines" speaks for nobody else: engines do not know each
# other, so each has a row. `room` finds an engine by URL scheme and name, and imports none.

WORDS = {"addresses", "errors", "duration", "findings", "ids", "limits", "logs", "model", "stats", "version"}
DOMAIN = WORDS | {"backoff", "policy", "records", "waiter", "engine", "checks"}
ROOM_LEVEL = DOMAIN | {
    "audit", "call", "charts", "config", "content", "delivery", "draft", "history", "matrix", "policies",
    "queue", "recent", "role", "room", "rotation", "schemas", "search", "settings", "source", "staff",
    "suspects", "telemetry", "through", "timetable", "upcoming",
}  # fmt: skip
PYTHON_DOOR = ROOM_LEVEL | {
    "aio", "breaker", "deadletters", "doctor", "idempotency", "keeper", "schedule", "sqlguard", "standing",
    "jobs", "marks", "readers", "services", "worker",
}  # fmt: skip

ALLOWED: dict[str, set[str]] = {
    # what things are
    "addresses": {"errors"},
    "errors": {"duration"},
    "duration": {"errors"},
    "ids": {"errors"},
    "limits": {"errors", "duration", "ids"},
    "logs": set(),
    "findings": set(),
    "model": {"errors", "duration", "ids", "limits"},
    "stats": set(),
    "version": set(),
    "backoff": {"errors", "duration"},
    "policy": WORDS | {"backoff"},
    # the one contract, and those who keep it
    "records": WORDS | {"backoff", "policy"},
    "waiter": set(),
    "engine": WORDS | {"backoff", "policy", "records", "waiter"},
    "checks": WORDS | {"engine"},
    "engines": DOMAIN,
    "engines.steps": DOMAIN,
    "engines.memory": DOMAIN | {"engines.steps"},
    "engines.sqlite": DOMAIN | {"engines.steps"},
    "engines.spool": DOMAIN | {"engines.steps"},
    "engines.redis": DOMAIN | {"engines.steps"},
    # the Python door
    "source": {"errors"},
    "settings": WORDS | {"backoff", "policy", "rotation"},
    "timetable": {"errors", "duration", "limits"},
    "config": WORDS | {"backoff", "policy", "role", "settings", "source", "timetable"},
    "matrix": WORDS | {"backoff", "config", "policy", "role"},
    "content": DOMAIN,
    "delivery": DOMAIN | {"content"},
    "draft": DOMAIN | {"content", "delivery"},
    "history": DOMAIN,
    "rotation": DOMAIN,
    "recent": DOMAIN,
    "role": DOMAIN | {"rotation"},
    "search": DOMAIN,
    "audit": DOMAIN | {"history"},
    "charts": DOMAIN,
    "upcoming": DOMAIN,
    "call": WORDS | {"content"},
    "schemas": WORDS | {"call", "content"},
    "queue": DOMAIN | {"audit", "call", "content", "delivery", "draft", "schemas", "search", "room"},
    "suspects": {"delivery"},
    "staff": DOMAIN | {"audit"},
    "through": DOMAIN,
    "policies": DOMAIN,
    "telemetry": DOMAIN | {"delivery", "staff", "through"},
    "room": DOMAIN
    | {"config", "delivery", "history", "policies", "queue", "rotation", "search", "settings"}
    | {"staff", "suspects", "telemetry"},
    "deadletters": ROOM_LEVEL,
    # the loops
    "standing": ROOM_LEVEL,
    "readers": DOMAIN | {"staff"},
    "breaker": ROOM_LEVEL | {"standing"},
    "idempotency": ROOM_LEVEL,
    "sqlguard": WORDS,
    "schedule": ROOM_LEVEL,
    "keeper": ROOM_LEVEL | {"schedule"},
    "worker": ROOM_LEVEL | {"breaker", "idempotency", "keeper", "standing"},
    "services": ROOM_LEVEL | {"deadletters"},
    "marks": ROOM_LEVEL | {"deadletters"},
    "jobs": ROOM_LEVEL | {"deadletters", "keeper", "services"},
    "doctor": ROOM_LEVEL | {"keeper"},
    "aio": ROOM_LEVEL,
    "postroom": PYTHON_DOOR,
    # for those who test with us, and the doors
    "testing": PYTHON_DOOR | {"postroom", "engines"},
    "celery": PYTHON_DOOR | {"postroom"},
    "django": PYTHON_DOOR | {"postroom"},
    "http": PYTHON_DOOR | {"postroom"},
    "cli": PYTHON_DOOR | {"postroom", "celery", "http", "testing"},
}

#: Imports against the direction, for annotations only: they do not happen at run time.
ANNOTATIONS_ONLY = {"errors": {"duration"}, "queue": {"room"}}

#: Who may write down where an engine lives; everybody else asks `room`.
MAY_NAME_ENGINES = {"room", "engines", "testing"}

FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}

#: `import postroom` must work, and start fast, without any of these.
NOT_AT_IMPORT = {
    "aiohttp", "anyio", "celery", "cronsim", "django", "fastapi", "hiredis", "httpx", "jsonschema_rs",
    "kombu", "litestar", "opentelemetry", "prometheus_client", "psycopg", "redis", "rich", "sqlalchemy",
    "starlette", "typer", "uvicorn",
}  # fmt: skip

SOURCES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "postroom"


MODULES = {module_name(path): path for path in SOURCES}


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def covers(name: str, module: str) -> bool:
    return module == name or module.startswith(name + ".")


def row_for(module: str) -> str | None:
    rows = (row for row in ALLOWED if module == row or (row != "engines" and covers(row, module)))
    return max(rows, key=len, default=None)


def is_any_of(names: set[str], module: str) -> bool:
    return any(covers(name, module) for name in names)


# ---- What a module imports ------------------------------------------------------------------------


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of every module of ours that this file imports, at the top or inside a function."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            targets = [f"{import_base(node, path)}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call):
            targets = imported_by_name(node)
        else:
            continue
        for target in targets:
            if covers("postroom", target):
                yield node.lineno, owning_module(target)


def import_base(node: ast.ImportFrom, path: Path) -> str:
    """The absolute name of what stands after `from`."""
    if node.level == 0:
        return node.module or ""
    folder = ("postroom", *path.relative_to(PACKAGE).parent.parts)
    base = folder[: len(folder) - node.level + 1]
    return ".".join((*base, node.module) if node.module else base)


def imported_by_name(call: ast.Call) -> list[str]:
    """The module in `import_module("postroom.…")` and `__import__("postroom.…")`."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name not in {"import_module", "__import__"}:
        return []
    return [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]


def owning_module(target: str) -> str:
    """The module that `postroom.model.State` belongs to: "model"."""
    below = target.split(".")[1:]
    while below and ".".join(below) not in MODULES:
        below.pop()
    return ".".join(below) or "postroom"


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module: str) -> None:
    row = row_for(module)
    assert row, f"{module} is not in ALLOWED: add it to the table, with what it may import"
    path = MODULES[module]
    wrong = [
        f"{path.relative_to(REPO)}:{line}: {module} may not import {target}"
        for line, target in imported_modules(path)
        if row_for(target) != row and not is_any_of(ALLOWED[row], target)
    ]
    assert not wrong, "\n".join(["", *wrong, f"{row} may import: {', '.join(sorted(ALLOWED[row]))}"])


def test_every_row_of_the_table_has_its_module() -> None:
    stale = set(ALLOWED) - set(MODULES)
    assert not stale, f"ALLOWED speaks of modules that do not exist: {sorted(stale)}"


def test_the_table_itself_has_no_circle() -> None:
    waiting = {
        row: {name for name in allowed - ANNOTATIONS_ONLY.get(row, set()) if name in ALLOWED}
        for row, allowed in ALLOWED.items()
    }
    while free := {row for row, needed in waiting.items() if not needed & set(waiting)}:
        waiting = {row: needed for row, needed in waiting.items() if row not in free}
    assert not waiting, f"these rows lead back to themselves: {sorted(waiting)}"


@pytest.mark.parametrize("module", ANNOTATIONS_ONLY)
def test_imports_for_annotations_do_not_happen_at_run_time(module: str) -> None:
    path = MODULES[module]
    guards = [node for node in ast.walk(parse(path)) if isinstance(node, ast.If)]
    shielded = {
        line
        for guard in guards
        if isinstance(guard.test, ast.Name) and guard.test.id == "TYPE_CHECKING"
        for line in range(guard.lineno, (guard.end_lineno or guard.lineno) + 1)
    }
    open_lines = [
        line
        for line, target in imported_modules(path)
        if is_any_of(ANNOTATIONS_ONLY[module], target) and line not in shielded
    ]
    assert not open_lines, f"{path.relative_to(REPO)}: only under TYPE_CHECKING: lines {open_lines}"


# ---- Who knows an engine --------------------------------------------------------------------------

ENGINE_NAME = re.compile(r"(^|\bpostroom)\.?engines\.")


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every string the code uses, parts of f-strings included; docstrings are prose and left out."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value


@pytest.mark.parametrize("module", [name for name in MODULES if not is_any_of(MAY_NAME_ENGINES, name)])
def test_only_the_room_names_an_engine_module(module: str) -> None:
    path = MODULES[module]
    found = [line for line, text in texts(parse(path)) if ENGINE_NAME.search(text)]
    assert not found, f"{path.relative_to(REPO)}, line {found}: open an engine through its URL instead"


def test_importing_postroom_loads_no_optional_package() -> None:
    code = "import sys, postroom; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(run.stdout.split())
    assert "postroom" in loaded
    assert not loaded & NOT_AT_IMPORT, "load these where they are used, not at import"


# ---- Names and sizes ------------------------------------------------------------------------------


def test_no_file_is_a_drawer_for_everything() -> None:
    paths = [
        path
        for top in ("src", "tests")
        for path in (REPO / top).rglob("*")
        if "__pycache__" not in path.parts
    ]
    drawers = [
        str(path.relative_to(REPO)) for path in paths if path.stem.lower().strip("_") in FORBIDDEN_NAMES
    ]
    assert not drawers, f"name these after what they do: {drawers}"


@pytest.mark.parametrize("module", MODULES)
def test_files_and_functions_stay_readable(module: str) -> None:
    path = MODULES[module]
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_FILE_LINES, f"{path.relative_to(REPO)} has {lines} lines: look for its second idea"
    long = [
        f"{path.relative_to(REPO)}:{node.lineno}: {node.name} has {length} lines"
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert not long, "\n".join(["", *long])


# ---- Error codes ----------------------------------------------------------------------------------


def error_tree(root: type[errors.PostroomError]) -> Iterator[type[errors.PostroomError]]:
    yield root
    for child in root.__subclasses__():
        yield from error_tree(child)


#: What other tests derive for themselves is not ours to document.
ERRORS = [error for error in error_tree(errors.PostroomError) if covers("postroom", error.__module__)]


def test_every_error_has_a_code_of_its_own() -> None:
    inherited = [error.__name__ for error in ERRORS if "code" not in vars(error)]
    assert not inherited, f"these errors borrow the code of their parent: {inherited}"
    codes = [error.code for error in ERRORS]
    twice = {code for code in codes if codes.count(code) > 1}
    assert not twice, f"codes used twice: {sorted(twice)}"


def test_every_error_is_documented() -> None:
    page = (REPO / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", page, re.MULTILINE))
    wrong = rows ^ {(error.code, error.__name__) for error in ERRORS}
    assert not wrong, f"docs/reference/errors.md and postroom.errors differ in: {sorted(wrong)}"
