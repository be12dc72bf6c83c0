"""What all tests share."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

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
