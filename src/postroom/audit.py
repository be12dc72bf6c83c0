"""The audit: what operators did, to which queue, when, and who. A topic, kept for a year.

Whatever a person can do to messages, queues, breakers and schedules is noted here by the domain, so that no
door can forget it. An act is noted when it is done, with how much it was; the queue's own history tells of it
in the same step as the act itself, so that a crash in between hides nothing. Work in many steps is noted at
both ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

import msgspec

from postroom.engine import Engine
from postroom.errors import PostroomError
from postroom.history import follow_topic
from postroom.limits import AUDIT, cut_text
from postroom.logs import TopicEntry

log: logging.Logger = logging.getLogger(__name__)

_actor: ContextVar[str] = ContextVar("postroom_actor", default="")
_watching: ContextVar[Watched | None] = ContextVar("postroom_watched", default=None)


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that somebody did. `info` says more: a reason, a filter, how it ended."""

    event: str
    queue: str = ""
    count: int = 0
    by: str = ""
    info: dict[str, Any] = {}
    id: str = ""
    at: int = 0


class Acts(NamedTuple):
    """Acts behind a cursor; `missed` counts those that the topic no longer has."""

    acts: list[Act]
    cursor: str
    missed: int = 0


_decode = msgspec.json.Decoder(Act).decode


@contextlib.contextmanager
def acting(who: str) -> Iterator[None]:
    """Everything that this thread or task does inside is done by `who`."""
    token = _actor.set(cut_text(who, "who"))
    try:
        yield
    finally:
        _actor.reset(token)


class Watched:
    """Why something is done, and whether it was noted; see `watched`."""

    def __init__(self, why: str) -> None:
        self.why: str = why
        self.noted: bool = False


@contextlib.contextmanager
def watched(why: str = "") -> Iterator[Watched]:
    """What is noted inside, also by a thread with this context, says `why`, unless it has a reason itself.

    `noted` tells whether anything was: a door that must not forget an act notes it itself if not.
    """
    inside = Watched(why)
    token = _watching.set(inside)
    try:
        yield inside
    finally:
        _watching.reset(token)


def nothing_to_note() -> None:
    """Tell who watches that nothing is missing: this was a dry run, or an engine has noted it itself."""
    if (watching := _watching.get()) is not None:
        watching.noted = True


def why() -> str:
    """Why it is done, as `watched` was told; "": nobody said."""
    watching = _watching.get()
    return watching.why if watching is not None else ""


def actor() -> str:
    """Who acts: as `acting` says, else the user and the process."""
    return _actor.get() or f"{_user()}@{os.uname().nodename}:{os.getpid()}"


def _user() -> str:
    import getpass  # here and not above: a program that only works on messages needs it not

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number that has no name
        return str(os.getuid())


def note(engine: Engine, event: str, queue: str = "", count: int = 0, **info: Any) -> None:
    """Write down an act that is done. That it cannot be written does not undo it: the log says so."""
    if (watching := _watching.get()) is not None:
        watching.noted = True
        if watching.why and not info.get("reason"):
            info["reason"] = watching.why
    act = {"event": event, "queue": queue, "count": count, "by": actor(), "info": info}
    try:
        engine.publish(AUDIT, [msgspec.json.encode(act)])
    except PostroomError as error:
        log.error("%s of %r is not in the audit: %s", event, queue, error, extra={"event": "audit.failed"})


def read(engine: Engine, after: str | None = "", limit: int = 100) -> Acts:
    """Acts behind a cursor, oldest first. None: from now on; "": from the oldest kept."""
    page = engine.read(AUDIT, after=after, limit=limit)
    return Acts([_told(entry) for entry in page.entries], page.cursor, page.missed)


def _told(entry: TopicEntry) -> Act:
    return msgspec.structs.replace(_act(entry.data), id=entry.id, at=entry.at)


def _act(data: bytes) -> Act:
    try:
        return _decode(data)
    except msgspec.DecodeError:  # whoever publishes to the topic itself may write what they like
        return Act(event="unreadable", info={"data": data[:200].decode("utf-8", "replace")})


def follow(engine: Engine, after: str | None = None, timeout: float | None = None) -> Iterator[Act]:
    """Acts as they happen, until the timeout (seconds in all)."""
    return map(_told, follow_topic(engine, AUDIT, after, timeout))


def newest(engine: Engine, count: int, queue: str | None = None) -> Acts:
    """The last `count` acts, oldest first, of all queues or of one; bounded by what the topic keeps."""
    kept: deque[Act] = deque(maxlen=count)
    cursor = ""
    while True:
        page = read(engine, cursor, 1_000)
        kept += (act for act in page.acts if queue in (None, act.queue))
        cursor = page.cursor
        if not page.acts:
            return Acts(list(kept), cursor)
