"""Between kombu's messages and Postroom's: what is kept, and what a consumer sees.

A kombu message is a dict of body, headers and properties. Its body is kept as it is, once: no base64, no
JSON around it. The task's name is the message's kind and its id the correlation id, so every view of a
queue can show them. What is left of headers and properties is one line of JSON, without whatever a
delivery can put back by itself.
"""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
from kombu.utils.json import dumps, loads

from postroom.delivery import Delivery
from postroom.duration import MAX_SPAN
from postroom.errors import InvalidInput
from postroom.ids import new_id
from postroom.limits import BINARY, FORBIDDEN_CONTENT, JSON, LAST_DUE, MAX_NAME, MAX_PRIORITY
from postroom.model import NewMessage

Payload = dict[str, Any]

#: Headers of ours in a stored message: what kombu's headers and properties say; by msgspec, by kombu.
_PLAIN, _RICH = "k", "K"
#: The name of a publish, set once: kombu repeats a publish with the same properties.
PUBLISH_ID = "postroom_id"
#: How long that name is known after its message is gone (ms).
REMEMBER = "postroom_remember"
#: What our requests tell a task: the earlier attempts that they count as retries.
ATTEMPTS = "postroom_attempts"
#: What every delivery tells: how often the message was delivered before this time.
EARLIER = "x-delivery-count"
#: A retry is known for this long after its message is gone (ms).
_REMEMBER_RETRY = 24 * 3_600_000
_JSON, _UTF8 = "application/json", "utf-8"

#: What Celery says in every message and rarely means: not kept, put back on delivery.
_USUAL: dict[str, Any] = {
    "lang": "py", "shadow": None, "eta": None, "expires": None, "group": None, "group_index": None,
    "retries": 0, "timelimit": [None, None], "parent_id": None, "argsrepr": "()", "kwargsrepr": "{}",
    "ignore_result": False, "replaced_task_nesting": 0, "stamped_headers": None, "stamps": {},
}  # fmt: skip
_ABSENT = object()
#: Of these, what is made anew for every message, and so is equal and not the same.
_EQUAL = ("timelimit", "stamps", "argsrepr", "kwargsrepr")
_SIMPLE = frozenset({str, int, float, bool, type(None)})
#: Properties that a delivery makes anew.
_MADE_ANEW = ("body_encoding", "delivery_tag", "delivery_info", "priority", PUBLISH_ID, REMEMBER)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[str, str, bytes]).decode


# --- from kombu to Postroom ---------------------------------------------------------------------


def wrap(
    queue: str,
    payload: Payload,
    *,
    zero_is_highest: bool = False,
    ttl: int | None = None,
    remember: int | None = None,
) -> NewMessage:
    """The message to put into this queue. Raises InvalidInput for a priority beyond 0–255.

    It is known by its id for `remember` (ms) after it is gone, unless it says so itself.
    """
    headers, properties = payload["headers"], payload["properties"]
    type_, encoding = payload["content-type"] or BINARY, payload["content-encoding"]
    text_type = type_ if type_ == JSON or not FORBIDDEN_CONTENT.search(type_) else BINARY
    task, task_id = headers.get("task"), headers.get("id")
    is_task = isinstance(task, str) and isinstance(task_id, str)
    delay, due = _when(headers, properties)
    id, remembered = _identity(properties, headers) if is_task else (publish_id(properties), None)
    # What Celery lets expire it wants to see revoked; other messages expire as in AMQP.
    lasts = ttl if is_task else _ttl(properties, ttl)
    return NewMessage(
        body=_bytes(payload["body"]),
        id=id,
        kind=cut_name(task) if is_task else "",
        correlation_id=cut_name(task_id) if is_task else None,
        content_type=text_type,
        headers=_texts(queue, payload, type_ if type_ != text_type else None, encoding, is_task),
        priority=_priority(properties, zero_is_highest),
        delay=delay,
        due=due,
        ttl=lasts and _from_due(lasts, delay, due),
        remember=remember if remembered is None else remembered,
    )


def publish_id(properties: Payload) -> str:
    """The private name of this publish: the same when kombu repeats it."""
    id: str = properties.setdefault(PUBLISH_ID, "") or new_id()
    properties[PUBLISH_ID] = id
    return id


def _identity(properties: Payload, headers: Payload) -> tuple[str, int | None]:
    """A retry published from inside its own task has one name, however often that task runs."""
    retries = headers.get("retries") or 0
    parent = _running(headers["id"]) if retries else None
    if parent is None:
        return publish_id(properties), properties.get(REMEMBER)
    id, attempts = parent
    text = f"{headers['id']}:{retries - attempts}:{id}"
    digest = hashlib.sha256(text.encode(), usedforsecurity=False).hexdigest()
    properties[PUBLISH_ID] = digest[:32]
    return digest[:32], _REMEMBER_RETRY


def _running(task_id: str) -> tuple[str, int] | None:
    """The message this thread works on, if it is that task; a redelivered one is the same message.

    And how many attempts on it the task counts as retries: a name must not change with them.
    """
    from celery._state import get_current_task

    task = get_current_task()
    request = getattr(task, "request", None)
    if request is None or request.id != task_id:
        return None
    properties = getattr(request, "properties", None) or {}
    tag = properties.get("delivery_tag") or ""
    return str(tag).partition(":")[0], getattr(request, ATTEMPTS, 0)


def cut_name(text: str) -> str:
    """As much of a task's name or id as a message has room for, for people; the whole is kept beside it."""
    if text.isascii():
        return text[:MAX_NAME]
    try:
        return text.encode()[:MAX_NAME].decode(errors="ignore")
    except UnicodeEncodeError:
        return text  # to be refused with whatever else cannot be a name


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else bytes(body or b"")


def _priority(properties: Payload, zero_is_highest: bool) -> int:
    given = properties.get("priority") or 0
    try:
        priority = max(0, min(int(given), MAX_PRIORITY))
    except (TypeError, ValueError):
        raise InvalidInput(f"priority: {given!r:.80} is not a number from 0 to {MAX_PRIORITY}") from None
    return MAX_PRIORITY - priority if zero_is_highest else priority


def _when(headers: Payload, properties: Payload) -> tuple[int, int | None]:
    """The delay or the due time; an eta without a zone is UTC, as everywhere in Celery's protocol."""
    eta = headers.get("eta")
    if isinstance(eta, str):
        try:
            at = datetime.fromisoformat(eta)
        except ValueError:
            return 0, None  # Celery's to complain about, in the worker
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return 0, max(0, min(-int(-at.timestamp() * 1_000 // 1), LAST_DUE))
    seconds = properties.get("DelaySeconds")
    return (max(0, int(float(seconds) * 1_000)), None) if seconds else (0, None)


def _ttl(properties: Payload, ttl: int | None) -> int | None:
    expiration = properties.get("expiration")
    return max(1, int(expiration)) if expiration else ttl


def _from_due(ttl: int, delay: int, due: int | None) -> int:
    """A span from now for one from the due time: nobody can take a message before."""
    ahead = delay if due is None else max(0, due - time.time_ns() // 1_000_000)
    return min(ttl + ahead, MAX_SPAN)


def _texts(
    queue: str, payload: Payload, type_: str | None, encoding: str | None, is_task: bool
) -> dict[str, str]:
    """All that a delivery cannot know by itself, as one line of JSON."""
    kept: Payload = {}
    headers = _unusual(payload["headers"]) if is_task else payload["headers"]
    if headers:
        kept["h"] = headers
    if properties := _unusual_properties(queue, payload, is_task):
        kept["p"] = properties
    if encoding != _UTF8:
        kept["e"] = encoding
    if type_ is not None:
        kept["t"] = type_
    if not is_task:
        kept["x"] = 1
    if not kept:
        return {}
    if _is_simple(headers.values()) and _is_simple(properties.values()):
        return {_PLAIN: _encode(kept).decode()}
    return {_RICH: dumps(kept)}


def _unusual(headers: Payload) -> Payload:
    usual = _USUAL
    task_id = headers["id"]
    kept = {name: value for name, value in headers.items() if usual.get(name, _ABSENT) is not value}
    for name in _EQUAL:
        if name in kept and kept[name] == usual[name]:
            del kept[name]
    for name in ("task", "id"):
        if cut_name(kept[name]) == kept[name]:
            del kept[name]
    if kept.get("root_id") == task_id:
        del kept["root_id"]
    elif "root_id" not in headers:
        kept["root_id"] = None
    return kept


def _unusual_properties(queue: str, payload: Payload, is_task: bool) -> Payload:
    properties, task_id = payload["properties"], payload["headers"].get("id")
    kept = {name: value for name, value in properties.items() if name not in _MADE_ANEW and value is not None}
    if kept.get("delivery_mode") == 2:
        del kept["delivery_mode"]
    if is_task and kept.get("correlation_id") == task_id:
        del kept["correlation_id"]
    info = properties.get("delivery_info") or {}
    if info.get("exchange"):
        kept["exchange"] = info["exchange"]
    if info.get("routing_key", queue) != queue:
        kept["routing_key"] = info["routing_key"]
    return kept


def _is_simple(values: Any) -> bool:
    return _SIMPLE.issuperset(map(type, values))


# --- from Postroom to kombu ---------------------------------------------------------------------


def unwrap(delivery: Delivery, tag: str, *, zero_is_highest: bool = False) -> Payload:
    """The message as kombu's consumers expect it. Its eta is over, whatever the worker's clock says.

    The priority is the one it was sent with: Celery sends a retry with what it reads here.
    """
    message = delivery.message
    texts = message.headers
    kept = _decode(texts[_PLAIN]) if _PLAIN in texts else loads(texts[_RICH]) if _RICH in texts else {}
    headers, properties = kept.get("h") or {}, {"delivery_mode": 2, **(kept.get("p") or {})}
    if message.kind and "x" not in kept:
        # What another door put has its own id for a task's, unless it was given a correlation id.
        headers = _headers(message.kind, delivery.correlation_id, headers)
        properties.setdefault("correlation_id", headers["id"])
    headers[EARLIER] = earlier = delivery.deliveries - 1
    priority = MAX_PRIORITY - message.priority if zero_is_highest else message.priority
    info = {
        "exchange": properties.pop("exchange", ""),
        "routing_key": properties.pop("routing_key", message.queue),
        "priority": priority,
        "redelivered": earlier > 0,
    }
    properties.update(priority=priority, delivery_tag=tag, body_encoding=None, delivery_info=info)
    return {
        "body": message.body,
        "content-type": kept.get("t") or message.content_type,
        "content-encoding": kept.get("e", _UTF8),
        "headers": headers,
        "properties": properties,
    }


def _headers(task: str, id: str, kept: Payload) -> Payload:
    # Lists and dicts are made anew: a task may change its own.
    headers = {
        **_USUAL,
        "timelimit": [None, None],
        "stamps": {},
        "task": task,
        "id": id,
        "root_id": kept.get("id", id),
        **kept,
    }
    if headers["stamps"] is None:
        headers["stamps"] = {}
    if headers["eta"] is not None:
        # It would make Celery hold the task in its memory, and for as long as its clock is behind.
        headers["x-postroom-eta"], headers["eta"] = headers["eta"], None
    return headers


# --- fanout -------------------------------------------------------------------------------------


def pack(routing_key: str, payload: Payload) -> bytes:
    """A message as an entry of a topic."""
    kept = {name: value for name, value in payload.items() if name != "body"}
    kept["properties"] = {**payload["properties"], "body_encoding": None}
    kept["properties"].pop(PUBLISH_ID, None)
    return _pack((routing_key, dumps(kept), _bytes(payload["body"])))


def unpack(entry: bytes) -> tuple[str, Payload]:
    """The routing key and the message of an entry."""
    routing_key, kept, body = _unpack(entry)
    payload: Payload = loads(kept)
    payload["body"] = body
    return routing_key, payload
