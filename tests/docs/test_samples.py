"""What the pages show as output is what comes out, and what they draw is what there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom import errors
from postroom.model import State
from tests.cli.inside import Inside
from tests.docs.blocks import BLOCKS, REPO, Block
from tests.docs.test_shape import PARTS
from tests.model.explorer import explore
from tests.model.lease import LeaseModel, Rules
from tests.redis.servers import MINIMAL_ACL
from tests.test_architecture import ALLOWED

ARCHITECTURE = "docs/explanation/architecture.md"
CONFIG = "docs/reference/config.md"


def samples(page: str) -> list[Block]:
    return [block for block in BLOCKS if block.kind == "text" and block.page == page]


def test_every_sample_is_made_below() -> None:
    known = {
        ARCHITECTURE: 1,
        CONFIG: 2,
        "docs/explanation/model.md": 1,
        "docs/reference/engines.md": 1,
        "docs/reference/errors.md": 1,
    }
    assert {block.page: len(samples(block.page)) for block in BLOCKS if block.kind == "text"} == known


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Inside:
    monkeypatch.chdir(tmp_path)
    return Inside(monkeypatch, capsys)


def test_the_error_of_a_wrong_name(inside: Inside) -> None:
    Path("postroom.toml").write_text('[queues.payouts]\nleese = "1m"\n', encoding="utf-8")
    assert inside.run("config", "show", code=1).err.startswith(samples(CONFIG)[0].text.rstrip("\n"))


def test_a_finding(inside: Inside) -> None:
    matrix = "[queues.chat_events]\n" + 11 * "\n" + '[roles.fast]\nqueues = ["chat_event"]\n'
    Path("postroom.toml").write_text(matrix, encoding="utf-8")
    assert samples(CONFIG)[1].text in inside.run("config", "check", code=1).out


def test_the_counterexample() -> None:
    found = explore(LeaseModel(Rules(settle_checks_token=False))).counterexample
    (sample,) = samples("docs/explanation/model.md")
    assert f"{found}\n" == sample.text


def test_what_a_user_of_redis_needs_to_be_allowed() -> None:
    (sample,) = samples("docs/reference/engines.md")
    assert sample.text.split()[:5] == ["ACL", "SETUSER", "app", "on", ">secret"]
    assert sample.text.split()[5:] == MINIMAL_ACL.split()


def tree(error: type[errors.PostroomError], before: str = "") -> Iterator[str]:
    children = [child for child in error.__subclasses__() if child.__module__ == errors.__name__]
    for child in children:
        last = child is children[-1]
        also = (
            " (also a ValueError)" if issubclass(child, ValueError) and ValueError in child.__bases__ else ""
        )
        yield f"{before}{'└' if last else '├'}── {child.__name__}{also}"
        yield from tree(child, f"{before}{' ' if last else '│'}   ")


def test_the_tree_of_errors() -> None:
    (sample,) = samples("docs/reference/errors.md")
    assert ["PostroomError", *tree(errors.PostroomError)] == sample.text.splitlines()


def test_the_picture_of_imports_shows_what_there_is() -> None:
    (sample,) = samples(ARCHITECTURE)
    assert set(re.findall(r"[a-z]+", sample.text)) - {"steps"} <= set(ALLOWED)


def picture(page: str) -> str:
    (block,) = (block for block in BLOCKS if block.kind == "mermaid" and block.page == page)
    return block.text


def test_the_picture_of_a_life_has_every_state_and_no_other() -> None:
    arrows = re.findall(r"^ +(\S+) --> (\S+?):", picture("docs/explanation/lifecycle.md"), re.MULTILINE)
    assert {state for arrow in arrows for state in arrow} - {"[*]"} == set(State)


def test_the_picture_of_the_whole_has_every_engine() -> None:
    folders = {path.name for path in (REPO / "src" / "postroom" / "engines").iterdir() if path.is_dir()}
    drawn = re.search(r"subgraph engines.*?end", picture(ARCHITECTURE), re.DOTALL)
    assert drawn
    assert set(re.findall(r"^ +(\w+)\[", drawn[0], re.MULTILINE)) == folders - {"steps", "__pycache__"}


def test_the_template_of_a_decision_has_the_parts_that_decisions_have() -> None:
    (block,) = (block for block in BLOCKS if block.kind == "markdown")
    assert re.findall(r"^## (.+)$", block.text, re.MULTILINE) == PARTS


def test_the_table_of_modules_has_every_module_and_no_other() -> None:
    table = (REPO / ARCHITECTURE).read_text(encoding="utf-8").partition("| modules |")[2]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = {name for cell in cells for name in re.findall(r"`(\w+)/?`", cell)}
    there = {name.partition(".")[0] for name in ALLOWED} - {"postroom"} | {"dashboard"}
    assert named == there
