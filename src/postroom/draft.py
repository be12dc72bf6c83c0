"""From what a producer says to a message that can be put: bodies, spans and moments made plain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

from postroom.content import encode
from postroom.delivery import current_delivery
from postroom.duration import Duration, Instant, instant, milliseconds
from postroom.errors import InvalidInput
from postroom.limits import MAX_BATCH, MAX_PUT_BYTES
from postroom.model import NewMessage
from postroom.policy import Policy


class PutOptions(TypedDict, total=False):
    """What can be said about a message beside its body; everything has a default.

    kind            the task's or event's name
    priority        a label of the policy ("low", "normal", "high") or 0–255, higher first
    delay, at       not before this span has passed, or not before this moment
    expires         worthless after this span (counted from now), or after this moment
    ack_timeout     how long the work may take, if other than the policy says
    max_attempts    how many starts may fail, if other than the policy says
    headers         text by name, for whatever comes between producer and handler
    correlation_id  what ties it to a request; inside a handler, the handled message's by default
    unique_key      at most one waiting or processing message of the queue has it
    remember        how long the same id is recognised after the message is gone
    content_type    what the bytes of the body are
    id              made here unless given; the same id is the same message
    """

    kind: str
    priority: str | int
    delay: Duration | None
    at: Instant | None
    expires: Duration | datetime | None
    ack_timeout: Duration | None
    max_attempts: int | None
    headers: Mapping[str, str] | None
    correlation_id: str | None
    unique_key: str | None
    remember: Duration | None
    content_type: str | None
    id: str | None


def draft(body: Any, policy: Policy, **options: Unpack[PutOptions]) -> NewMessage:
    """The message that this body and these options make, checked."""
    if not options:
        return _plain_draft(body, policy)
    if unknown := options.keys() - PutOptions.__annotations__.keys():
        raise InvalidInput(
            f"there is no option {', '.join(sorted(unknown))} for a message; "
            f"there are {', '.join(PutOptions.__annotations__)}, and rate_key to put"
        )
    if options.get("delay") is not None and options.get("at") is not None:
        raise InvalidInput("a message takes delay or at, not both")
    data, content_type = encode(body, options.get("content_type"))
    ttl, expires = _expiry(options.get("expires"))
    due = options.get("at")
    delivery = current_delivery()
    own_id = {} if options.get("id") is None else {"id": options["id"]}
    return NewMessage(
        body=data,
        kind=options.get("kind", ""),
        content_type=content_type,
        headers=_headers(options.get("headers")),
        priority=policy.priority(options.get("priority", "normal")),
        delay=_span("delay", options.get("delay")) or 0,
        due=None if due is None else instant(due, "at"),
        ttl=ttl,
        expires=expires,
        ack_timeout=_span("ack_timeout", options.get("ack_timeout")),
        max_attempts=options.get("max_attempts"),
        correlation_id=options.get("correlation_id") or (delivery.correlation_id if delivery else None),
        unique_key=options.get("unique_key"),
        remember=_span("remember", options.get("remember")),
        **own_id,  # type: ignore[arg-type]  # a NewMessage checks it like everything else
    )


def _plain_draft(body: Any, policy: Policy) -> NewMessage:
    """The same for a message of which nothing is said, as of most: asking for each option takes its time."""
    data, content_type = encode(body)
    delivery = current_delivery()
    return NewMessage(
        body=data,
        content_type=content_type,
        priority=policy.priority("normal"),
        correlation_id=delivery.correlation_id if delivery else None,
    )


def drafter(policy: Policy, **options: Unpack[PutOptions]) -> Callable[[Any], NewMessage]:
    """`draft` for many bodies with the same options, which are looked at only once."""
    if options.get("content_type"):
        return lambda body: draft(body, policy, **options)
    model = draft(None, policy, **options)
    shared = {name: getattr(model, name) for name in _SHARED if getattr(model, name) != _DEFAULTS[name]}

    def make(body: Any) -> NewMessage:
        data, content_type = encode(body)
        return NewMessage(body=data, content_type=content_type, **shared)

    return make


_SHARED = [name for name in NewMessage.__struct_fields__ if name not in ("body", "id", "content_type")]
_DEFAULTS = {name: getattr(NewMessage(), name) for name in _SHARED}


def calls(messages: list[NewMessage]) -> Iterator[list[NewMessage]]:
    """Cut into calls that every engine takes: at most 1,000 messages and 16 MB each."""
    call: list[NewMessage] = []
    size = 0
    for message in messages:
        if call and (len(call) == MAX_BATCH or size + len(message.body) > MAX_PUT_BYTES):
            yield call
            call, size = [], 0
        call.append(message)
        size += len(message.body)
    if call:
        yield call


def _headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    if headers is not None and not isinstance(headers, Mapping):
        raise InvalidInput(f"headers: expected texts by name, not {headers!r:.80}")
    return dict(headers or {})


def _span(name: str, value: Duration | None) -> int | None:
    return None if value is None else milliseconds(value, name)


def _expiry(expires: Duration | datetime | None) -> tuple[int | None, int | None]:
    """(span, None) or (None, moment): only a datetime is a moment."""
    if isinstance(expires, datetime):
        return None, instant(expires, "expires")
    span = _span("expires", expires)
    if span == 0:
        raise InvalidInput("expires: a message must expire after now and after it is due")
    return span, None
