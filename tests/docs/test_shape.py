"""What keeps pages short: one screen for the README, forty lines for a decision, a fixed shape for both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import REPO, blocks_of

DECISIONS = sorted((REPO / "docs" / "decisions").glob("0*.md"))
PARTS = ["Question", "Decision", "Instead of", "Consequences"]


def lines(page: Path) -> list[str]:
    return page.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name)
def test_a_decision_is_short_and_has_its_parts(page: Path) -> None:
    text = lines(page)
    assert len(text) <= 40
    assert text[0].startswith(f"# {int(page.name[:4])}. ")
    assert text[2].startswith("Status: ")
    parts = [line.removeprefix("## ") for line in text if line.startswith("## ")]
    assert parts in (PARTS, [part for part in PARTS if part != "Instead of"])


def test_decisions_are_numbered_in_order() -> None:
    assert [int(page.name[:4]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_the_readme_shows_and_promises_before_it_leads_on() -> None:
    page = REPO / "README.md"
    text = page.read_text(encoding="utf-8")
    example = next(block for block in blocks_of(page) if block.kind == "python")
    assert len([line for line in example.text.splitlines() if line.strip()]) <= 12
    assert len(lines(page)) <= 70
    order = [
        "**The delivery layer",
        "how-it-works.svg",
        "```python",
        "## What is promised",
        "## Pick an engine",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[-1] == "Where to go"
