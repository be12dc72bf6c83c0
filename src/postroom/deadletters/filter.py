"""Which dead letters are meant: every condition that is given must hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from postroom.deadletters.incidents import Status
from postroom.deadletters.letter import Classification, DeadLetter, plain
from postroom.duration import Duration, format_duration, milliseconds
from postroom.errors import InvalidInput
from postroom.limits import check_between

_MOST_CONDITIONS = 20
#: What somebody sees of a value that a letter holds.
Seen = Callable[[Any], Any]
_PAYLOAD = "payload."


def _whole_value(value: Any) -> Any:
    return value


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions; without any, every dead letter is meant.

    kind            the message's kind, or the name of its task
    error           a part of the exception's type or text, in any case
    classification  "timeout", "crash-loop" …
    group           a fingerprint
    status          how it stands with the group: "open", "acknowledged" or "resolved"
    task            a task id, a message id or a correlation id
    older, newer    died longer ago, or not so long ago ("2h"), by the clock of this machine
    since, until    died from this moment on, or before it (epoch ms; as a condition ISO 8601, with a zone)
    attempts        at least so many attempts
    where           fields of the payload: {"user.id": "42"}; under Celery of its keyword arguments;
                    "args.0" and "kwargs.user" are understood too
    replayed        True: was replayed before; False: was not; None: either
    """

    kind: str | None = None
    error: str | None = None
    classification: Classification | None = None
    group: str | None = None
    status: Status | None = None
    task: str | None = None
    older: Duration | None = None
    newer: Duration | None = None
    since: int | None = None
    until: int | None = None
    attempts: int | None = None
    where: dict[str, str] = {}
    replayed: bool | None = None

    def __post_init__(self) -> None:
        for name in ("older", "newer"):
            if (span := getattr(self, name)) is not None:
                msgspec.structs.force_setattr(self, name, format_duration(milliseconds(span, name)))
        if self.classification is not None:
            msgspec.structs.force_setattr(self, "classification", _classification(self.classification))
        if self.status is not None:
            msgspec.structs.force_setattr(self, "status", _status(self.status))
        if self.attempts is not None:
            check_between("attempts", self.attempts, 0, 1_000)
        if len(self.where) > _MOST_CONDITIONS:
            raise InvalidInput(f"where: at most {_MOST_CONDITIONS} conditions")

    @classmethod
    def parse(cls, conditions: Sequence[str]) -> Filter:
        """The filter that texts such as "class=timeout" and "payload.user.id=42" stand for.

        Names are kind, error, class, group, status, task, older, newer, since, until, attempts, replayed
        and payload.FIELD.
        """
        fields: dict[str, Any] = {}
        where: dict[str, str] = {}
        for text in conditions:
            name, equals, value = text.partition("=")
            if not equals or not value:
                raise InvalidInput(f"condition: {text!r} is not NAME=VALUE")
            if name.startswith(_PAYLOAD):
                where[name.removeprefix(_PAYLOAD)] = value
            elif name not in _NAMES:
                raise InvalidInput(f"condition: {name!r} is not one of {', '.join(_NAMES)}, {_PAYLOAD}FIELD")
            else:
                field, read = _NAMES[name]
                fields[field] = read(name, value)
        return cls(**fields, where=where)

    def as_dict(self) -> dict[str, Any]:
        """The conditions that are given, for the audit and for people."""
        return {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not None and value != {}
        }

    def with_group(self, group: str) -> Filter:
        return msgspec.structs.replace(self, group=group)

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.as_dict().items()) or "all"

    def matcher(self, now: int, as_seen: Seen = _whole_value) -> Callable[[DeadLetter], bool]:
        """Whether a letter is meant, as a function; to `group`, `status` and `task` whoever looks has seen.

        Errors and payloads are compared `as_seen`: who may not see a secret must not find it by guessing.
        """
        checks = [check for check in self._checks(now, as_seen) if check]
        return lambda letter: all(check(letter) for check in checks)

    def _checks(self, now: int, as_seen: Seen) -> list[Callable[[DeadLetter], bool] | None]:
        older = None if self.older is None else now - milliseconds(self.older)
        newer = None if self.newer is None else now - milliseconds(self.newer)
        text = (self.error or "").casefold()
        return [
            None if self.kind is None else lambda letter: self.kind in (letter.kind, letter.call.task_name),
            None if not text else lambda letter: text in as_seen(letter.failure.summary).casefold(),
            None
            if self.classification is None
            else lambda letter: letter.classification is self.classification,
            None if older is None else lambda letter: letter.died_at <= older,
            None if newer is None else lambda letter: letter.died_at >= newer,
            None if self.since is None else lambda letter: letter.died_at >= (self.since or 0),
            None if self.until is None else lambda letter: letter.died_at < (self.until or 0),
            None if self.attempts is None else lambda letter: letter.entry.attempt >= (self.attempts or 0),
            None if self.replayed is None else lambda letter: bool(letter.replayed_as) is self.replayed,
            None if not self.where else lambda letter: self._fields_fit(letter, as_seen),
        ]

    def _fields_fit(self, letter: DeadLetter, as_seen: Seen) -> bool:
        call = {"args": letter.call.args, "kwargs": letter.call.kwargs}
        places = (as_seen(_payload(letter)), as_seen(call))
        return all(
            wanted in [_text(_field(place, path)) for place in places] for path, wanted in self.where.items()
        )


def _text_of(name: str, value: str) -> str:
    return value


def _whole(name: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal()):
        raise InvalidInput(f"{name}: {value!r} is not a whole number")
    return int(value)


def _moment(name: str, value: str) -> int:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidInput(f"{name}: {value!r:.80} is not ISO 8601 with a time zone: 2026-11-17T10:00:00Z")
    return round(moment.timestamp() * 1_000)


def _yes_or_no(name: str, value: str) -> bool:
    if value not in ("yes", "no"):
        raise InvalidInput(f"{name}: {value!r} is neither yes nor no")
    return value == "yes"


#: The conditions as people write them: the field that each is about, and how its value is read.
_NAMES: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "kind": ("kind", _text_of),
    "error": ("error", _text_of),
    "class": ("classification", _text_of),
    "group": ("group", _text_of),
    "status": ("status", _text_of),
    "task": ("task", _text_of),
    "older": ("older", _text_of),
    "newer": ("newer", _text_of),
    "since": ("since", _moment),
    "until": ("until", _moment),
    "attempts": ("attempts", _whole),
    "replayed": ("replayed", _yes_or_no),
}


def _classification(value: str) -> Classification:
    try:
        return Classification(value)
    except ValueError:
        raise InvalidInput(f"class: {value!r} is not one of {', '.join(Classification)}") from None


def _status(value: str) -> Status:
    try:
        return Status(value)
    except ValueError:
        raise InvalidInput(f"status: {value!r:.80} is not one of {', '.join(Status)}") from None


def _payload(letter: DeadLetter) -> Any:
    call = letter.call
    if call.kwargs:
        return call.kwargs
    return call.args[0] if isinstance(call.args, list) and call.args else None


_MISSING = object()


def _field(value: Any, path: str) -> Any:
    """What is at a path such as "user.id" or "items.0.price"."""
    for name in path.split("."):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return _MISSING
    return value


def _text(value: Any) -> str | None:
    """A value as people write it in a condition: text as it is, all else as JSON."""
    if value is _MISSING:
        return None
    return value if isinstance(value, str) else msgspec.json.encode(plain(value)).decode()
