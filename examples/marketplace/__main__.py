"""`python -m examples.marketplace [URL]`: the scenario, and PASS or FAIL."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from examples.marketplace.scenario import play


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="marketplace-") as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/marketplace.db"
        wrong = play(url, Path(folder))
    for line in wrong:
        print("wrong:", line)
    print("FAIL" if wrong else "PASS: every poison message is dead under its name, and nothing healthy is")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
