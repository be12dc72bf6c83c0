"""Workers that are gone when a test ends."""

from __future__ import annotations

from tests.door.conftest import hire

__all__ = ["hire"]
