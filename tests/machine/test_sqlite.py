"""The SQLite engine against the memory engine and a ledger."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from postroom.engines.sqlite import SqliteEngine
from postroom.engines.sqlite.file import File
from postroom.testing import EngineMachine, ManualClock
from postroom.testing.machine import MACHINE_SETTINGS

# A failure is worth the time that it takes to make it small.
pytestmark = pytest.mark.timeout(600)


class SqliteMachine(EngineMachine):
    def make_engine(self, clock: ManualClock) -> SqliteEngine:
        self.folder = tempfile.TemporaryDirectory()
        return SqliteEngine(File(str(Path(self.folder.name) / "store.db"), synchronous="normal"), clock)

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


TestSqliteMachine = SqliteMachine.TestCase
TestSqliteMachine.settings = MACHINE_SETTINGS
