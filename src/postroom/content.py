"""Bodies: values to bytes and back. Nothing is decoded that could run code."""

from __future__ import annotations

import base64
import math
from typing import Any

import msgspec

from postroom.errors import InvalidInput, Undecodable
from postroom.limits import BINARY, FORBIDDEN_CONTENT, JSON
from postroom.model import Message

_BYTES = (bytes, bytearray, memoryview)


def encode(body: Any, content_type: str | None = None) -> tuple[bytes, str]:
    """The body as bytes, and what kind of bytes: bytes stay as they are, all else becomes JSON."""
    if isinstance(body, _BYTES):
        return bytes(body), content_type or BINARY
    try:
        if content_type is not None and isinstance(body, str):
            return body.encode(), content_type
        data = msgspec.json.encode(body)
        if b"null" in data and _has_no_number(body):
            raise ValueError("NaN and infinity have no place in it")
        return data, content_type or JSON
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        form = content_type or "JSON"
        raise InvalidInput(f"body: it cannot be written as {form} ({error}); put bytes instead") from error


def _has_no_number(body: Any) -> bool:
    """Whether a float in it is no number: the encoder would write null, and it would be lost."""
    if isinstance(body, float):
        return not math.isfinite(body)
    if isinstance(body, dict):
        return any(map(_has_no_number, body.values()))
    return isinstance(body, list | tuple | set | frozenset) and any(map(_has_no_number, body))


def decode(message: Message) -> Any:
    """The body as a value: JSON decoded, text as str, all else as bytes. Raises Undecodable."""
    kind = message.content_type.partition(";")[0].strip().lower()
    try:
        if kind == JSON or kind.endswith("+json"):
            return _decode_json(message.body)
        if FORBIDDEN_CONTENT.search(kind):
            raise Undecodable(f"{kind} is refused, because decoding it runs code")
        return message.body.decode() if kind.startswith("text/") else message.body
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"the body of {message.id} is not {message.content_type}: {error}") from error


def readable(message: Message) -> dict[str, Any]:
    """The body for people and for JSON: as a value where that can be read, and else its bytes in base64."""
    try:
        value = decode(message)
    except Undecodable:
        value = message.body
    if isinstance(value, bytes):
        return {"body_base64": base64.b64encode(value).decode()}
    return {"body": value}


def _decode_json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        import json  # here and not above: hardly anybody needs it

        # The stdlib also reads what some other producers write: NaN, lone surrogates.
        return json.loads(body)
