"""Links lead somewhere, to a page or a heading, and every page is linked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import REPO

LINK = re.compile(r"\]\(([^)#:]*)(#[^)]*)?\)")
FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
PAGES = [*REPO.glob("*.md"), *REPO.glob("docs/**/*.md"), *REPO.glob("examples/**/*.md")]


def anchors(page: Path) -> set[str]:
    """Of its headings, as the places that show Markdown make them."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {"#" + re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(REPO)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    targets = [((page.parent / name) if name else page, anchor) for name, anchor in links]
    assert [str(target) for target, _ in targets if not target.exists()] == []
    assert [
        (str(target), anchor) for target, anchor in targets if anchor and anchor not in anchors(target)
    ] == []


@pytest.mark.parametrize("page", sorted(REPO.glob("docs/*/*.md")), ids=lambda path: path.name)
def test_a_page_is_listed_where_its_folder_is_described(page: Path) -> None:
    index = page.parent / "README.md"
    listed = index if index.exists() else REPO / "docs" / "index.md"
    assert page == index or page.name in listed.read_text(encoding="utf-8") or page.parent.name == "decisions"
