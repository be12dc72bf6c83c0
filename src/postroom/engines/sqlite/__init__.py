"""Messages in a SQLite file: durable, for several processes of one machine, without a server.

`sqlite:///jobs.db` is in the current folder, `sqlite:////var/lib/app/jobs.db` an absolute path. Options:
`?synchronous=normal` (faster; a power cut may take the last moments), `?busy_timeout=5s` (how long to
wait for another process), `?outbox=yes` (beside one's own tables, for `put(connection=…)`).
"""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, unquote

from postroom.duration import milliseconds
from postroom.engines.sqlite.engine import SqliteEngine
from postroom.engines.sqlite.file import File
from postroom.errors import ConfigError

__all__ = ["SqliteEngine", "connect"]

_OPTIONS = ("synchronous", "busy_timeout", "outbox")


def connect(url: SplitResult, max_body: int) -> SqliteEngine:
    """The engine of a `sqlite:///` URL."""
    path = unquote(url.path.removeprefix("/"))
    if url.netloc or url.fragment or not path:
        raise ConfigError(
            "url: sqlite:/// takes a path, such as sqlite:///jobs.db or sqlite:////var/lib/jobs.db"
        )
    options = dict(parse_qsl(url.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - set(_OPTIONS)):
        raise ConfigError(f"url: sqlite:/// has no option {unknown[0]!r}; it has {', '.join(_OPTIONS)}")
    file = File(
        path,
        synchronous=options.get("synchronous", "full").lower(),
        busy_timeout=milliseconds(options.get("busy_timeout", "5s"), "busy_timeout"),
        outbox=_yes("outbox", options.get("outbox", "no")),
    )
    return SqliteEngine(file, max_body=max_body)


def _yes(name: str, value: str) -> bool:
    if value.lower() not in ("yes", "no"):
        raise ConfigError(f"url: {name} is yes or no, not {value!r:.80}")
    return value.lower() == "yes"
