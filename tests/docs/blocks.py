"""The blocks of code on our pages: what each is, and the commands that stand in it."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REPO = Path(__file__).parents[2]
#: What somebody reads who wants to use Postroom, or to work on it.
PAGES = [
    *(REPO / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(REPO.glob("docs/**/*.md")),
    *sorted(REPO.glob("examples/**/*.md")),
]
_FENCED = re.compile(r"^( *)```([^\n]*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"(^|\s)#\s.*$", re.MULTILINE)
#: Characters between two commands; shlex gives runs of them as one token.
_BETWEEN = set("\n|&;()")


class Block(NamedTuple):
    page: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str:
        """The name in its first line, `# shop/jobs.py`, if it is a file."""
        found = re.match(r"# ([\w./@-]+\.\w+)\n", self.text)
        return found[1] if found else ""


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [_block(page, text, found) for found in _FENCED.finditer(text)]


def _block(page: Path, text: str, found: re.Match[str]) -> Block:
    line = text.count("\n", 0, found.start()) + 1
    return Block(str(page.relative_to(REPO)), line, found[2], textwrap.dedent(found[3]))


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def of(kind: str, page: str = "") -> list[Block]:
    return [block for block in BLOCKS if block.kind == kind and (not page or block.page == page)]


def write_files(page: str, folder: Path) -> None:
    """The files that a page shows: those with a name, and its first TOML as the configuration."""
    for block in reversed(of("toml", page)):
        (folder / "postroom.toml").write_text(block.text, encoding="utf-8")
    for block in of("python", page):
        if block.file:
            file = folder / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")


def commands(text: str) -> Iterator[list[str]]:
    """The simple commands of a shell script: without comments, assignments and redirections."""
    lexer = shlex.shlex(
        _COMMENT.sub(r"\1", text.replace("\\\n", " ")), posix=True, punctuation_chars="();<>|&\n"
    )
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t", "", True
    words: list[str] = []
    for token in lexer:
        if set(token) <= _BETWEEN:
            yield from _command(words)
            words = []
        else:
            words.append(token)
    yield from _command(words)


def _command(words: list[str]) -> Iterator[list[str]]:
    said: list[str] = []
    rest = iter(words)
    for word in rest:
        if word.startswith((">", "<")):
            next(rest, None)
            if said and said[-1].isdigit():  # the 2 of 2>
                said.pop()
        elif said or not re.match(r"\w+=", word):
            said.append(word)
    if said:
        yield said
