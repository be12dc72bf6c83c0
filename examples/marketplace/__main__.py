"""`python -m examples.marketplace [URL]`: the scenario, and PASS or FAIL."""

from __future__ import annotations

import sys

from examples.marketplace.scenario import play, run

if __name__ == "__main__":
    sys.exit(run(play, "poison is dead under its name, nothing healthy is, and every invoice is paid once"))
