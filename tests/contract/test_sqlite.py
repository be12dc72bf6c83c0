"""The SQLite engine keeps the contract."""

from __future__ import annotations

from postroom.engines.sqlite import SqliteEngine
from postroom.engines.sqlite.file import File
from postroom.testing import EngineContract, ManualClock


class TestSqlite(EngineContract):
    def make_engine(self, clock: ManualClock) -> SqliteEngine:
        """Where no commit waits for the disk: nothing here is about a power cut."""
        return SqliteEngine(File(str(self.folder / "store.db"), synchronous="normal"), clock)
