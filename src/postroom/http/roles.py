"""Who may do what: a route says what it does as noun.verb, each of these asks for one right (an action
flag), and a role is a set of rights.

A route says `opt={"action": "queue.purge"}`. One that says nothing, or what is not listed here, is closed
to everybody: what was forgotten must not be open.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from postroom.errors import InvalidInput


class Action(enum.StrEnum):
    """A right. PUBLIC is everybody's: probes, and the way in."""

    PUBLIC = "public"
    READ = "read"
    AUDIT = "audit"
    RAW = "raw"
    PUT = "put"
    WORK = "work"
    PUBLISH = "publish"
    MOVE = "move"
    PAUSE = "pause"
    REPLAY = "replay"
    DISCARD = "discard"
    NOTE = "note"
    BREAKER = "breaker"
    SCHEDULE = "schedule"
    WORKER = "worker"
    SWEEP = "sweep"
    DECLARE = "declare"
    PURGE = "purge"
    DROP = "drop"
    CONFIG = "config"
    TOKEN = "token"  # noqa: S105 — the name of a right, not a secret


class Role(enum.StrEnum):
    """A viewer looks, an operator keeps the work flowing, an admin also destroys and gives rights."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


_LOOKING = frozenset({Action.PUBLIC, Action.READ})
#: All that a server with --read-only lets anybody do.
READ_ONLY = _LOOKING | {Action.AUDIT}
_OPERATING = frozenset(
    {
        Action.PUT, Action.WORK, Action.PUBLISH, Action.MOVE, Action.PAUSE, Action.REPLAY, Action.NOTE,
        Action.BREAKER, Action.SCHEDULE, Action.WORKER, Action.SWEEP, Action.CONFIG,
    }
)  # fmt: skip

ACTIONS: dict[Role, frozenset[Action]] = {
    Role.VIEWER: _LOOKING,
    Role.OPERATOR: READ_ONLY | _OPERATING,
    Role.ADMIN: frozenset(Action),
}


#: The right that each route asks for, by what it does.
RIGHTS: dict[str, Action] = {
    name: action
    for action, names in {
        Action.PUBLIC: "health dashboard.show session.create session.delete session.show",
        Action.READ: "metrics queue.list queue.show queue.stats queue.backlog queue.history "
        "message.find message.show dead.list dead.show dead.groups breaker.list schedule.list worker.list "
        "topic.list topic.read event.stream counters.show samples.show upcoming.show mark.list sla.show "
        "job.list job.show schema.show service.list service.stats archive.list archive.show archive.groups",
        Action.AUDIT: "audit.list",
        Action.RAW: "message.raw dead.export archive.export",
        Action.PUT: "message.put",
        Action.WORK: "delivery.claim delivery.settle",
        Action.PUBLISH: "topic.publish",
        Action.MOVE: "message.cancel message.reschedule message.run_now message.release message.bury "
        "message.extend",
        Action.PAUSE: "queue.pause queue.resume",
        Action.REPLAY: "dead.replay archive.replay job.cancel job.pause job.resume",
        Action.DISCARD: "dead.discard dead.import archive.discard",
        Action.NOTE: "dead.note archive.note mark.add",
        Action.BREAKER: "breaker.open breaker.close",
        Action.SCHEDULE: "schedule.run_now schedule.pause schedule.resume",
        Action.WORKER: "worker.quiet worker.resume worker.stop",
        Action.SWEEP: "keeper.sweep",
        Action.DECLARE: "queue.declare",
        Action.PURGE: "queue.purge",
        Action.DROP: "queue.drop",
        Action.CONFIG: "config.show doctor.show",
        Action.TOKEN: "token.create token.list token.revoke",
    }.items()
    for name in names.split()
}


class Right(msgspec.Struct, frozen=True):
    """A right, the roles that have it, and what routes do who ask for it."""

    right: Action
    roles: list[Role]
    does: list[str]


def rights() -> list[Right]:
    """Every right that somebody must be given, with who has it."""
    return [
        Right(
            action,
            [role for role in Role if action in ACTIONS[role]],
            [name for name, right in RIGHTS.items() if right is action],
        )
        for action in Action
        if action is not Action.PUBLIC
    ]


def read_role(text: str) -> Role:
    """The role of this name, or InvalidInput."""
    try:
        return Role(text)
    except ValueError:
        raise InvalidInput(f"role: {text!r:.80} is not one of {', '.join(Role)}") from None


def read_actions(names: Iterable[str]) -> frozenset[Action]:
    """The actions of these names, or InvalidInput."""
    try:
        return frozenset(Action(name) for name in names)
    except ValueError as error:
        raise InvalidInput(f"allow: {error}; there is {', '.join(Action)}") from None
