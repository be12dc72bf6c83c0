"""The SQLite engine keeps the contract."""

from __future__ import annotations

from postroom.engines.sqlite import SqliteEngine
from postroom.engines.sqlite.file import File
from postroom.testing import EngineContract, ManualClock


class TestSqlite(EngineContract):
    def make_engine(self, clock: ManualClock) -> SqliteEngine:
        return SqliteEngine(File(str(self.folder / "store.db")), clock)
