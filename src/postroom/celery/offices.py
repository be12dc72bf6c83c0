"""The offices of this process: one for each URL and options, whatever asks for it."""

from __future__ import annotations

import os
import threading

from postroom.celery.office import Office
from postroom.celery.options import Options


class _Offices:
    """By URL and options; a forked child has the same ones, each holding nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[str, Options], Office] = {}

    def get(self, url: str, options: Options) -> Office:
        key = (url, options)
        with self._lock:
            office = self._open.get(key)
            if office is None or office.is_closed:
                office = self._open[key] = Office(url, options)
        return office

    def close(self) -> None:
        with self._lock:
            offices = list(self._open.values())
            self._open.clear()
        for office in offices:
            office.close()

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        for office in self._open.values():
            office.leave_to_parent()


_offices = _Offices()
os.register_at_fork(after_in_child=_offices.after_fork)


def office_of(url: str, options: Options) -> Office:
    """The office for this URL, opened if need be. Raises EngineUnavailable while the store is away."""
    return _offices.get(url, options)


def close_offices() -> None:
    """Close every office of this process; a later connection opens its room anew."""
    _offices.close()
