"""What all tests share."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

REPO = Path(__file__).parents[1]
#: What a battle that went wrong leaves behind, for whoever wants to know why: no store, which may be large.
LEDGERS = REPO / "build" / "ledgers"
_TELLING = {".ledger", ".log", ".txt"}

# The contract's asserts live in the package; rewritten, they explain themselves like any test's.
pytest.register_assert_rewrite("postroom.testing")

# The same examples in every run: a red test must be repeatable. Exploring is for those who have the time.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# A shell has what it starts in the background ignore Ctrl-C, and so would every process of the tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)  # the oldest Celery is tried without xdist
def pytest_xdist_auto_num_workers() -> int:
    """Two for each core: most tests wait for servers and processes, not for the processor."""
    return 2 * (os.cpu_count() or 2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test that kept ledgers says where they are: no second run finds the same moment again."""
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if call.when == "call" and report.failed and folder and any(folder.glob("*.ledger")):
        kept = LEDGERS / re.sub(r"\W+", "-", f"{item.path.parent.name} {item.name}").strip("-")
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        for path in folder.iterdir():
            if path.suffix in _TELLING:
                shutil.copy(path, kept)
        report.sections.append(("ledgers", f"kept in {kept.relative_to(REPO)}"))
    return report
