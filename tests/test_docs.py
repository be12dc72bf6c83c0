"""The documentation runs: every Python block of a page, in order, in one interpreter."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "docs/tutorial.md",
    "docs/how-to/circuit-breakers.md",
    "docs/how-to/events-between-services.md",
    "docs/how-to/monitor.md",
    "docs/how-to/move-from-celery-on-redis.md",
    "docs/how-to/never-pay-twice.md",
    "docs/how-to/schedules.md",
    "docs/how-to/test-an-engine.md",
    "docs/how-to/use-a-sqlite-file.md",
    "docs/how-to/use-with-celery.md",
]
ROLES = REPO / "docs" / "how-to" / "run-workers-by-role.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page: str, tmp_path: Path) -> None:
    blocks = BLOCK.findall((REPO / page).read_text(encoding="utf-8"))
    assert blocks
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    command = [sys.executable, str(script)]
    ran = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    "page",
    [*REPO.glob("*.md"), *REPO.glob("docs/**/*.md"), *REPO.glob("examples/**/*.md")],
    ids=lambda path: path.name,
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


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
