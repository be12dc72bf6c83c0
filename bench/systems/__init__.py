"""Those who work through jobs, Postroom and others, as far as they are measured."""

from __future__ import annotations

import importlib

from bench.systems.system import Asynchronous, Body, Nobody, System, Terms, Unable, Watch

__all__ = ["KINDS", "Asynchronous", "Body", "Nobody", "System", "Terms", "Unable", "Watch", "kind_of"]

#: By name: the class, and the module that must be there for it.
KINDS = {
    "Postroom": ("ours:Postroom", "postroom"),
    "Celery on Postroom": ("celery:OnPostroom", "celery"),
    "Celery": ("celery:Stock", "celery"),
    "dramatiq": ("threads:Dramatiq", "dramatiq"),
    "huey": ("threads:Huey", "huey"),
    "RQ": ("threads:RQ", "rq"),
    "RQ SimpleWorker": ("threads:SimpleRQ", "rq"),
    "taskiq": ("loops:Taskiq", "taskiq_redis"),
    "streaq": ("loops:Streaq", "streaq"),
    "arq": ("loops:Arq", "arq"),
    "procrastinate": ("loops:Procrastinate", "procrastinate"),
}


def kind_of(name: str) -> type[System]:
    """The class of this name. What it needs is imported when one is opened."""
    module, _, found = KINDS[name][0].partition(":")
    kind: type[System] = getattr(importlib.import_module(f"bench.systems.{module}"), found)
    return kind
