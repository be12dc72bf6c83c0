"""What a message asks for: a task by name, with its arguments; and what a replay of it changes.

A plain message asks for its kind, with its body as the one argument. A task of Celery says more, in its
body and its headers, as Celery or our transport wrote them. Nothing here imports Celery.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from postroom.content import decode, encode
from postroom.errors import InvalidInput, Undecodable
from postroom.limits import FORBIDDEN_CONTENT, JSON
from postroom.model import Message

#: What Celery says of the life that is over.
_OVER = ("retries", "expires")
#: What our transport keeps of a body: its content type and its encoding, which an edited one has not.
_OF_THE_BODY = ("t", "e")
_NO_PAYLOAD = 'the payload of a Celery task is {"args": […], "kwargs": {…}}, or a part of that'
_UNREAD = 'this payload cannot be read, so nothing of it can stay: give both {"args": […], "kwargs": {…}}'


class Call(NamedTuple):
    """What a message asks for: a task by name, with its arguments."""

    task_id: str
    task_name: str
    args: Any
    kwargs: Any
    #: Earlier tries that the message itself tells of; None: it tells of none.
    retries: int | None = None


def call_of(message: Message) -> Call:
    """The call in a message: its body, or, if it is a task of Celery, what Celery put there."""
    value, told = _value(message), celery_headers(message)
    is_body = _is_celery_body(value)
    if told is None and not _looks_like_celery(message, value):
        return Call(message.id, message.kind or message.queue, [] if value is None else [value], {})
    told = told or {}
    args, kwargs = value[:2] if is_body else _printed(told, value, message.content_type)
    task_id = str(told.get("id") or message.correlation_id or message.id)
    retries = str(told.get("retries", 0))
    name = str(told.get("task") or message.kind)
    return Call(task_id, name, args, kwargs, int(retries) if retries.isdecimal() else None)


def _printed(told: dict[str, Any], value: Any, content_type: str) -> tuple[Any, Any]:
    """Of a body that is not decoded: what Celery printed, or the body itself where it should be JSON."""
    if content_type == JSON and "argsrepr" not in told:
        return [value], {}
    return told.get("argsrepr", ""), told.get("kwargsrepr", "")


def _value(message: Message) -> Any:
    try:
        return decode(message)
    except Undecodable:
        return message.body


def celery_headers(message: Message) -> dict[str, Any] | None:
    """What Celery says about its task; None: it says nothing, and it may be no task.

    Either in the headers themselves, or in one of them as JSON, as our transport keeps them.
    """
    if "task" in message.headers:
        return dict(message.headers)
    kept = _kept(message)
    headers = kept.get("h") if "x" not in kept else None
    return headers if isinstance(headers, dict) else None


def _kept(message: Message) -> dict[str, Any]:
    """What our transport keeps of a message of kombu; nothing: it did not come from there."""
    text = message.headers.get("k") or message.headers.get("K")
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except msgspec.DecodeError:  # somebody else's
        return {}


def _looks_like_celery(message: Message, value: Any) -> bool:
    """Without any headers: what has a name and an id, and arguments as Celery has them."""
    return bool(message.kind and message.correlation_id) and _is_celery_body(value)


def _is_celery_body(value: Any) -> bool:
    """Protocol 2: [args, kwargs, what to do afterwards]."""
    shape = isinstance(value, list) and len(value) == 3 and isinstance(value[0], list)
    return shape and isinstance(value[1], dict) and isinstance(value[2], dict)


# --- a replay -----------------------------------------------------------------------------------


def headers_anew(message: Message, *, edited: bool) -> dict[str, str] | None:
    """The headers of its replay; None: those that it has.

    Celery keeps with a task how often it was retried and when it expires. A replay that said so too would
    be given up with its first failure, or before anybody looks at it.
    """
    if "task" in message.headers:
        kept = {name: text for name, text in message.headers.items() if name not in _OVER}
        return kept if len(kept) < len(message.headers) else None
    for name in ("k", "K"):  # as our transport keeps them
        if name in message.headers:
            return _without(message.headers, name, edited)
    return None


def _without(headers: dict[str, str], name: str, edited: bool) -> dict[str, str] | None:
    try:
        kept = msgspec.json.decode(headers[name], type=dict[str, Any])
    except msgspec.DecodeError:  # somebody else's
        return None
    over = (() if "x" in kept else _OVER) + (("compression",) if edited else ())
    new = {each: value for each, value in kept.items() if not (edited and each in _OF_THE_BODY)}
    if isinstance(said := kept.get("h"), dict):
        new["h"] = {each: value for each, value in said.items() if each not in over}
    return None if new == kept else headers | {name: msgspec.json.encode(new).decode()}


def body_anew(message: Message, edited: Any) -> Any:
    """The body that an edited payload makes. Raises InvalidInput for one that no task could take.

    Of a task of Celery it is its arguments, and what is not given stays, also what is to follow the task. Of
    one that cannot be read nothing can stay, so all of its arguments must be given.
    """
    value = _value(message)
    if isinstance(edited, bytes) or not _is_task(message, value):
        return edited
    is_read = _is_celery_body(value)
    old = value if is_read else [[], {}, {}]
    if not is_read and isinstance(edited, dict) and edited.keys() != {"args", "kwargs"}:
        raise InvalidInput(_UNREAD)
    if isinstance(edited, dict) and edited and edited.keys() <= {"args", "kwargs"}:
        edited = [edited.get("args", old[0]), edited.get("kwargs", old[1])]
    shape = [type(part) for part in edited] if isinstance(edited, list) else []
    if shape not in ([list, dict], [list, dict, dict]):
        raise InvalidInput(_NO_PAYLOAD)
    return [*edited, *old[len(edited) :]]


class Payload(msgspec.Struct, frozen=True):
    """What a message carries, as people edit it for a replay."""

    #: Its body, or, of a task of Celery, its call; null where nobody can edit it.
    value: Any = None
    #: Of a call, what an edited payload leaves out stays as it was.
    is_call: bool = False
    #: Why nobody can edit it, in words; "": it can be edited.
    fixed: str = ""


def payload_of(message: Message) -> Payload:
    """The payload to edit; where the way through JSON would lose some of it, why there is none."""
    try:
        value = decode(message)
        if isinstance(value, bytes):
            return Payload(fixed=_why_bytes(message))
        encode(value)
    except Undecodable as error:
        return Payload(fixed=_why_packed(message) or str(error))
    except InvalidInput as error:
        return Payload(fixed=f"its body cannot be written as JSON: {error.__cause__}")
    seen = seen_by_people(message, value)
    return Payload(seen, is_call=seen is not value)


def _why_bytes(message: Message) -> str:
    # Our transport does not call a pickle by its name, because no engine would take it.
    type_ = str(_kept(message).get("t") or message.content_type)
    if FORBIDDEN_CONTENT.search(type_):
        return f"its body is {type_}, and to read that would run code"
    return _why_packed(message) or f"its body is {type_}, which is neither JSON nor text"


def _why_packed(message: Message) -> str:
    """Celery compresses what it is told to, and says so in a header."""
    by = (celery_headers(message) or {}).get("compression")
    return f"its body is compressed ({by})" if by else ""


def seen_by_people(message: Message, body: Any) -> Any:
    """A body of this message as people see and edit it: of a task of Celery, its call."""
    is_call = _is_celery_body(body) and _is_task(message, _value(message))
    return {"args": body[0], "kwargs": body[1]} if is_call else body


def _is_task(message: Message, value: Any) -> bool:
    """Whether it is a task of Celery; an event has its name in the headers too, but no arguments."""
    has_call = _is_celery_body(value) or isinstance(value, bytes)
    return _looks_like_celery(message, value) or (celery_headers(message) is not None and has_call)
