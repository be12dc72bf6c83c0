"""What the payload of a kind must look like: JSON Schemas, which the tables `[kinds.NAME]` name.

They are asked when somebody has edited a payload by hand, where a slip is easy and nobody else looks: a
replay with another body. What programs put is theirs to check, and costs nothing here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from postroom.call import body_anew, seen_by_people
from postroom.content import encode
from postroom.errors import ConfigError, InvalidInput, MissingExtra
from postroom.model import Message

if TYPE_CHECKING:
    from jsonschema_rs import Validator

#: So many of the fields that are wrong are named.
_MOST = 3


def edited(message: Message, body: Any, schemas: Mapping[str, str]) -> tuple[bytes, str]:
    """An edited payload as bytes, and what kind of bytes. Raises InvalidInput if no task could take it, or
    if it is not as the schema of its kind says: with the fields that are wrong.

    Of a task of Celery the schema is about its call, `{"args": […], "kwargs": {…}}`. Bytes have no schema.
    Raises ConfigError for a schema that cannot be used, and MissingExtra where nothing can read one.
    """
    new = body_anew(message, body)
    data, content_type = encode(new)
    file = schemas.get(message.kind)
    if file is not None and not isinstance(new, bytes):
        _check(message.kind, file, msgspec.json.decode(msgspec.json.encode(seen_by_people(message, new))))
    return data, content_type


def _check(kind: str, file: str, value: Any) -> None:
    validator = _validator(file, _read(file))
    wrong = [f"{_path(error.instance_path)}: {error.message}" for error in validator.iter_errors(value)]
    if wrong:
        more = f"; and {len(wrong) - _MOST} more" if len(wrong) > _MOST else ""
        raise InvalidInput(f"body: not as the schema of {kind} says: {'; '.join(wrong[:_MOST])}{more}")


def _path(parts: list[str | int]) -> str:
    """As people write it: user.emails[0]; the whole of it is "body"."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.removeprefix(".") or "body"


def _read(file: str) -> str:
    from pathlib import Path  # here and not above: who only works on messages needs it not

    try:
        return Path(file).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"the schema {file} cannot be read: {error}") from error


@functools.lru_cache(maxsize=64)
def _validator(file: str, text: str) -> Validator:
    try:
        import jsonschema_rs  # here and not above: only who edits a payload with a schema needs it
    except ImportError as error:
        raise MissingExtra(f"to check by {file}: pip install 'postroom[schema]' ({error})") from error
    try:
        return jsonschema_rs.validator_for(msgspec.json.decode(text), retriever=_refuse)
    except ValueError as error:  # not JSON, or no schema
        raise ConfigError(f"{file} is no JSON Schema: {str(error).splitlines()[0]}") from error


def _refuse(address: str) -> Any:
    """A schema stands for itself: what it means must not depend on who answers on a network."""
    raise ValueError(f"{address} is outside of it, and is not fetched")
