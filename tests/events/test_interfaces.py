"""What events use of Celery, kombu and py-amqp: all of it is in this list, and all of it is public.

When it changes, look the new thing up in their documentation first; docs/decisions says why.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

from postroom.celery import events

FOLDER = Path(inspect.getfile(events)).parent
THEIRS = {"amqp", "billiard", "celery", "kombu", "vine"}

#: What is imported, and the page of their documentation that it is on.
IMPORTS = {
    "celery.Celery": "reference: celery",
    "celery.Task": "userguide: tasks, Custom task classes",
    "celery.bootsteps": "userguide: extending, Extensions and Bootsteps",
    "celery.current_task": "reference: celery",
    "celery.signals": "userguide: signals",
    "celery.app.defaults.SETTING_KEYS": "internals reference: celery.app.defaults",
    "celery.exceptions.Ignore": "userguide: tasks, Semipredicates",
    "celery.exceptions.MaxRetriesExceededError": "reference: celery.exceptions",
    "celery.exceptions.Retry": "reference: celery.exceptions",
    "celery.worker.consumer.Consumer": "userguide: configuration, worker_consumer",
    "celery.worker.strategy": "userguide: extending, strategies; what Task.Strategy names by default",
    "kombu.Exchange": "userguide: producers",
    "kombu.Queue": "userguide: consumers",
    "kombu.binding": "reference: kombu.entity",
    "kombu.exceptions.OperationalError": "reference: kombu.exceptions",
    "kombu.transport.pyamqp": "reference: kombu.transport.pyamqp",
    "amqp.exceptions.AMQPError": "reference: amqp.exceptions",
    "amqp.exceptions.InternalError": "reference: amqp.exceptions",
    "amqp.exceptions.NotFound": "reference: amqp.exceptions",
    "amqp.exceptions.PreconditionFailed": "reference: amqp.exceptions",
    "amqp.exceptions.ResourceLocked": "reference: amqp.exceptions",
    "amqp.exceptions.RecoverableConnectionError": "reference: amqp.exceptions",
}

_TRANSPORT = {"drain_events", "on_readable", "qos_semantics_matches_spec", "register_with_event_loop"}
#: What our classes say otherwise than the class of theirs that they stand on.
OVERRIDES = {
    "app.EventsApp": {"__init__", "__reduce__"},
    # Besides options of tasks: autoretry_for, retry_backoff, retry_backoff_max, retry_jitter.
    "handling.EventTask": {
        "Request", "Strategy", "abstract", "app", "default_retry_delay", "on_retry", "retry",
    },
    "request.Request": {"acknowledge", "reject", "revoked"},
    "consumer.Consumer": {
        "connect", "on_connection_error_after_connected", "on_decode_error", "on_invalid_task",
        "on_unknown_message",
    },
    "intake.Intake": {"name", "requires", "start", "stop"},
    "watching.Watching": {"name", "requires", "start", "stop"},
    "amqp.Transport": _TRANSPORT,
    "amqp.SSLTransport": _TRANSPORT,
}  # fmt: skip

#: Sent by Celery, and listened to.
SIGNALS = {"celeryd_init", "worker_init", "worker_ready", "worker_shutting_down"}


def trees() -> Iterator[ast.Module]:
    for path in sorted(FOLDER.glob("*.py")):
        yield ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in THEIRS:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in THEIRS)


def test_every_import_is_listed_and_nothing_else() -> None:
    assert {name for tree in trees() for name in imported(tree)} == set(IMPORTS)
    assert not [name for name in IMPORTS if "._" in name]


def test_no_private_attribute_of_anything_is_touched() -> None:
    """Their own underscore belongs to `self`; where another object has one, it is theirs."""
    touched = {
        ast.unparse(node)
        for tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    }
    assert not touched


def foreign(kind: type) -> set[str]:
    """What the classes of theirs that this one stands on define."""
    theirs = [base for base in kind.__mro__ if base.__module__.split(".")[0] in THEIRS]
    return {name for base in theirs for name in vars(base)}


def ours(kind: type) -> set[str]:
    """What is said in this package, by the class and by those of ours that it stands on."""
    here = [base for base in kind.__mro__ if base.__module__.startswith(events.__name__)]
    return {name for base in here for name in (*vars(base), *vars(base).get("__annotations__", {}))}


def test_every_override_is_listed_and_none_is_private() -> None:
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        module = importlib.import_module(f"{events.__name__}.{path.stem}")
        for name, kind in vars(module).items():
            if not inspect.isclass(kind) or kind.__module__ != module.__name__ or not foreign(kind):
                continue
            found[f"{path.stem}.{name}"] = (ours(kind) & foreign(kind)) - _OF_EVERY_CLASS
    assert found == OVERRIDES
    private = [name for names in found.values() for name in names if name.startswith("_")]
    assert sorted(private) == ["__init__", "__reduce__"]


_OF_EVERY_CLASS = {"__module__", "__doc__", "__dict__", "__weakref__", "__annotations__"}


def test_every_signal_is_listed() -> None:
    listened = {
        node.attr
        for tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "signals"
    }
    assert listened == SIGNALS
