"""The scripts: one a verb, each composed of what it needs and what the verb itself is.

A script is named by the hash of its text, so that an older and a newer release can work on one server.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Sequence

from postroom.engines.redis.client import Script
from postroom.engines.redis.packing import failure_parts
from postroom.limits import LAST_DUE
from postroom.model import Failure
from postroom.policy import expired_failure, ran_out_failure

#: What a failure says when the consumer said nothing.
_UNNAMED = Failure(type="Failed", text="the consumer gave no reason")

_WRITE, _DRAIN, _LOOK = "", " flags=allow-oom", " flags=no-writes"


def _quoted(data: bytes) -> str:
    """A Lua string of any bytes."""
    return '"' + "".join(f"\\{byte:03d}" for byte in data) + '"'


def _constants() -> str:
    """What scripts must know of the domain."""
    failures = {
        "TOO_SLOW": ran_out_failure("", too_slow=True, failed_at=0),
        "SILENT": ran_out_failure("", too_slow=False, failed_at=0),
        "EXPIRED": expired_failure("", 0),
        "UNNAMED": _UNNAMED,
    }
    lines = [f"local LAST_DUE = {LAST_DUE}"]
    for name, failure in failures.items():
        note, signature, _, summary = failure_parts(failure)
        # Of what ran out the history only says what it was.
        shown = summary if failure is _UNNAMED else failure.type.encode()
        parts = ", ".join(map(_quoted, (note, signature, b"", shown)))
        lines.append(f"local {name} = {{ {parts} }}")
    return "\n".join(lines) + "\n"


def _text(name: str) -> str:
    """A part without its comments: they are for whoever reads the source."""
    text = (importlib.resources.files(__package__) / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    return re.sub(r"^\s*--[^\n]*\n", "", text, flags=re.MULTILINE)


def _compose(verb: str, flags: str, *parts: str, name: str = "", rare: Sequence[str] = ()) -> Script:
    texts = [_constants() if part == "constants" else _text(part) for part in ("numbers", *parts)]
    return Script.of(name or verb, f"#!lua{flags}\n" + "".join(texts) + _later(rare) + _text(verb))


def _later(parts: Sequence[str]) -> str:
    """The functions of these parts as fields of `rare()`, made when the first of them is needed.

    Lua makes every function anew with every call of a script. A call that needs none of the rare ones
    should not pay for them: that is half of the time of a call about one message.
    """
    text = "".join(map(_text, parts))
    names = re.findall(r"^local function (\w+)", text, flags=re.MULTILINE)
    fields = ", ".join(f"{name} = {name}" for name in names)
    start = "local made\nlocal function rare()\nif made then return made end\n"
    return f"{start}{text}made = {{ {fields} }}\nreturn made\nend\n" if parts else ""


_STEPS = ("constants", "books", "format", "message", "steps")
_RARE = ("format", "message", "steps", "time")

PUT = _compose("put", _WRITE, "constants", "books", "format", rare=_RARE)
PUT_ONE = _compose("put_one", _WRITE)
TURN = _compose("turn", _DRAIN, "constants", "books", "format", rare=(*_RARE, "endings", "careful"))
HOLD = _compose("hold", _DRAIN, *_STEPS)
SWEEP = _compose("sweep", _DRAIN, *_STEPS, "time", "trash")
MOVE = _compose("move", _DRAIN, *_STEPS, "show")
REPLAY = _compose("move", _WRITE, *_STEPS, "show", name="replay")
PURGE = _compose("purge", _DRAIN, "books")
CLEAN = _compose("clean", _DRAIN, *_STEPS, "trash")
DROP = _compose("drop", _DRAIN, "books")
DECLARE = _compose("declare", _DRAIN, "books")
PAUSE = _compose("pause", _DRAIN, "books")
RESUME = _compose("resume", _DRAIN, "books")
RING = _compose("ring", _DRAIN, "books")
STATS = _compose("stats", _LOOK, "books", "format", "message")
GET = _compose("get", _LOOK, *_STEPS, "show")
STORED = _compose("stored", _LOOK, *_STEPS, "show")
FIND = _compose("find", _LOOK, *_STEPS, "show")
GROUPS = _compose("groups", _LOOK, "books")
TALLY = _compose("tally", _LOOK, "books")
BACKLOG = _compose("backlog", _LOOK, "books", "format")
LOG = _compose("log", _LOOK, "books", "stream")

PUBLISH = _compose("publish", _WRITE)
ANNOUNCE = _compose("publish", _DRAIN, name="announce")
READ = _compose("read", _LOOK, "stream")

RECORD_GET = _compose("record_get", _LOOK, "record")
RECORD_PUT = _compose("record_put", _DRAIN, "record")
RECORD_ADD = _compose("record_put", _WRITE, "record", name="record_add")
RECORD_DELETE = _compose("record_delete", _DRAIN, "record")
RECORD_TAKE = _compose("record_take", _DRAIN, "record")
RECORD_LIST = _compose("record_list", _LOOK, "record")

NUDGE = _compose("nudge", _DRAIN)
ENLIST = _compose("enlist", _DRAIN)
