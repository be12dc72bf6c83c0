"""Forks: no connection to a SQLite file may be open while the process forks.

SQLite keeps account of a process's locks in memory. A child that inherits the account believes that it
holds locks which it does not hold, and may damage the file. So before a fork every engine closes its
connections; parent and child open new ones when they need them.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forking(Protocol):
    def before_fork(self) -> None: ...

    def after_fork_in_parent(self) -> None: ...

    def after_fork_in_child(self) -> None: ...


_watched: weakref.WeakSet[Forking] = weakref.WeakSet()


def watch(engine: Forking) -> None:
    """Have this engine told of every fork, for as long as it lives."""
    _watched.add(engine)


def _before() -> None:
    for engine in list(_watched):
        engine.before_fork()


def _in_parent() -> None:
    for engine in list(_watched):
        engine.after_fork_in_parent()


def _in_child() -> None:
    for engine in list(_watched):
        engine.after_fork_in_child()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
