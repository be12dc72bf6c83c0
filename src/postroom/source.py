"""The file that a configuration comes from: which one it is, what it says, and on which line.

That is the file given by name, else the one POSTROOM_CONFIG names, else ./postroom.toml, else the
part [tool.postroom] of ./pyproject.toml, else none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from postroom.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

FILE = "postroom.toml"
PROJECT = "pyproject.toml"
#: Names the file, and is therefore the one variable that is not a setting.
VARIABLE = "POSTROOM_CONFIG"

_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?")
_KEY = re.compile(r"\s*(\"[^\"]*\"|'[^']*'|[\w-]+)\s*[=.]")
_BARE = re.compile(r"[\w-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Source:
    """What a file says to us; `table` is our part of it ("": all of it), `file` is None without one."""

    file: str | None = None
    table: str = ""
    content: Mapping[str, Any] = field(default_factory=dict, repr=False)
    text: str = field(default="", repr=False)

    @property
    def origin(self) -> str:
        """How values from its top are shown."""
        return f"{self.file} [{self.table}]" if self.table else f"{self.file}"

    def heading(self, kind: str, name: str) -> str:
        """The table of a queue or a role as it stands in the file: [queues.emails]."""
        quoted = name if _BARE.fullmatch(name) else f'"{name}"'
        return f"[{self.table}.{kind}.{quoted}]" if self.table else f"[{kind}.{quoted}]"

    def line(self, heading: str, key: str = "") -> int | None:
        """On which line this table gives this key, or else begins; None when that cannot be told."""
        begins = None
        for number, table, found in _places(self.text):
            if table == _plain(heading.strip("[]")):
                if found == key:
                    return number
                if not found:
                    begins = begins or number
        return begins


def read(path: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> Source:
    """The file to go by, or ConfigError in one line when it is not there or cannot be read."""
    from pathlib import Path  # here and not above, as tomllib: most programs have no file

    named = path or environ.get(VARIABLE)
    if named:
        by = "" if path else f" ({VARIABLE} names it)"
        return _read(Path(named), by)
    for file in (Path(FILE), Path(PROJECT)):
        if file.exists() and (source := _read(file, "")).file:
            return source
    return Source()


def _read(file: Path, by: str) -> Source:
    try:
        text = file.read_bytes().decode()
        return _project(file, text) if file.name == PROJECT else Source(str(file), "", _parse(text), text)
    except FileNotFoundError:
        raise ConfigError(f"{file}: there is no such file{by}") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: is not valid TOML: {error}") from None


def _project(file: Path, text: str) -> Source:
    """Our part of a project's file; without one the file is not ours to judge."""
    if "tool.postroom" not in text:
        return Source()
    content = _parse(text).get("tool", {}).get("postroom")
    return Source() if content is None else Source(str(file), "tool.postroom", content, text)


def _parse(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text)


def _places(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, table and key of everything that stands at the beginning of a line; "" for a table itself."""
    table, inside = "", False
    for number, line in enumerate(text.splitlines(), start=1):
        quotes = line.count('"""') + line.count("'''")
        if not inside and (header := _HEADER.fullmatch(line)):
            table = _plain(header[1])
            yield number, table, ""
        elif not inside and (key := _KEY.match(line)):
            yield number, table, _plain(key[1])
        inside ^= quotes % 2 == 1


def _plain(name: str) -> str:
    """A dotted name without quotes and spaces: enough to find it again."""
    return re.sub(r"[\"'\s]", "", name)
