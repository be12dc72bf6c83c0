"""What docs/explanation/model.md says of the models."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "model.md"


def states(of: str) -> int:
    """How many states it gives for one of them, such as "the lease"."""
    found = re.search(rf"([\d,]+) of {of}\b", PAGE.read_text(encoding="utf-8"))
    assert found, f"{PAGE.name} does not say how many states there are of {of}"
    return int(found[1].replace(",", ""))
