"""Links lead somewhere, and a page can be followed to its end; tests/docs runs every block of every page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
ROLES = REPO / "docs" / "how-to" / "run-workers-by-role.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
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


def test_the_page_about_roles_can_be_followed(tmp_path: Path) -> None:
    """Its file, its module and its commands, with a message that is worked on at the end."""
    page = ROLES.read_text(encoding="utf-8")
    (matrix,) = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (module,) = BLOCK.findall(page)
    (tmp_path / "postroom.toml").write_text(matrix, encoding="utf-8")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "jobs.py").write_text(module, encoding="utf-8")

    def run(*args: str) -> str:
        command = [sys.executable, "-m", "postroom.cli", *args]
        ran = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert run("config", "check", "--strict") == "ok\n"
    run("message", "put", "emails", '{"to": "ada"}')
    run("message", "put", "chat", '{"who": "bob"}', "--kind", "joined")
    assert sorted(run("worker", "--role", "fast", "--drain").splitlines()) == ["bob joined", "to ada"]
