"""What goes over the wire: requests and answers, as the structs that OpenAPI is made of.

Spans in a request are seconds or text such as "15m", moments are ISO 8601 with a time zone or epoch seconds.
Times in an answer are epoch milliseconds by the clock of the store. A request with a field that we do not
know is refused: a mistyped option must not be passed over.
"""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from postroom.call import Payload
from postroom.content import readable
from postroom.deadletters import call_of
from postroom.errors import InvalidInput
from postroom.model import Attempt, Entry, Failure, Leased, Receipt, State
from postroom.stats import QueueStats

Span = float | str
Moment = datetime | float


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What every request has in common."""


class NewMessage(Request):
    """A message to put: its body as JSON (or `body_base64`: bytes), and what `PutOptions` knows."""

    body: Any = None
    body_base64: str | None = None
    kind: str = ""
    priority: str | int = "normal"
    delay: Span | None = None
    at: Moment | None = None
    #: A span from now, or a moment as text.
    expires: Span | None = None
    ack_timeout: Span | None = None
    max_attempts: int | None = None
    headers: dict[str, str] | None = None
    correlation_id: str | None = None
    unique_key: str | None = None
    remember: Span | None = None
    content_type: str | None = None
    id: str | None = None

    def content(self) -> Any:
        return self.body if self.body_base64 is None else _bytes(self.body_base64, "body_base64")

    def options(self) -> dict[str, Any]:
        """What was said beside the body, as `Queue.put` takes it."""
        names = (name for name in self.__struct_fields__ if name not in ("body", "body_base64"))
        given = {name: getattr(self, name) for name in names}
        given["expires"] = _span_or_moment(self.expires)
        return {name: value for name, value in given.items() if value not in (None, "")}


def _span_or_moment(said: Span | None) -> Span | datetime | None:
    """No span has a hyphen, and every date has."""
    if not isinstance(said, str) or "-" not in said:
        return said
    try:
        return datetime.fromisoformat(said)
    except ValueError:
        return said  # whoever reads the span says what is wrong with it


def _bytes(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput(f"{name}: this is not base64") from None


class NewMessages(Request):
    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=1_000)]


class Put(msgspec.Struct, frozen=True):
    """The id under which a message is kept, and whether this call made it."""

    id: str
    created: bool


class Puts(msgspec.Struct, frozen=True):
    puts: list[Put]


class MessageView(msgspec.Struct, kw_only=True):
    """A message, where it stands and what happened to it. A body that is no JSON or text is base64."""

    id: str
    queue: str
    state: State
    kind: str
    priority: int
    put_at: int
    due: int
    content_type: str
    headers: dict[str, str]
    payload_hash: str
    body: Any | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    expires: int | None = None
    ack_timeout: int | None = None
    max_attempts: int | None = None
    correlation_id: str | None = None
    unique_key: str | None = None
    attempt: int = 0
    deliveries: int = 0
    ran_out: int = 0
    strays: int = 0
    consumer: str = ""
    started_at: int | None = None
    deadline: int | None = None
    #: How often this delivery was given more time; 255 is so often or more.
    extended: int = 0
    attempts: list[Attempt] = []
    task_id: str = ""
    task_name: str = ""
    failure: Failure | None = None
    failed_at: int | None = None
    last_error: str | None = None
    replayed_as: list[str] = []
    #: Where its trace is looked at, if the server was told (`trace_link`) and it has a traceparent.
    trace_link: str | None = None
    #: Of one message, what people read in it: its body, or the call of a Celery task. A list has none.
    payload: Payload | UnsetType = UNSET


def view(entry: Entry) -> MessageView:
    """Everything but the token: that is for whoever works on it."""
    message, call = entry.message, call_of(entry.message)
    of_message = ("id", "queue", "kind", "priority", "put_at", "content_type", "headers", "expires",
                  "ack_timeout", "max_attempts", "correlation_id", "unique_key")  # fmt: skip
    of_entry = ("state", "due", "payload_hash", "attempt", "deliveries", "ran_out", "strays", "consumer",
                "started_at", "deadline", "extended", "failure", "failed_at", "last_error")  # fmt: skip
    return MessageView(
        **{name: getattr(message, name) for name in of_message},
        **{name: getattr(entry, name) for name in of_entry},
        **readable(message),
        attempts=list(entry.attempts),
        task_id=call.task_id,
        task_name=call.task_name,
        replayed_as=list(entry.replayed_as),
    )


class Page(msgspec.Struct):
    """Some of them; `cursor` goes on behind the last, and is null on the last page."""

    messages: list[MessageView]
    cursor: str | None = None


# --- queues ----------------------------------------------------------------------------------------


class QueueView(msgspec.Struct, kw_only=True):
    """A queue: how it stands, whether and why it is paused, and what it promises."""

    queue: str
    stats: QueueStats
    paused: bool
    pause_reason: str
    paused_until: int | None = None
    policy: dict[str, Any]
    #: Of one queue: where each setting was given; "queue" is what was declared with it alone.
    origins: dict[str, str] = {}


class QueueList(msgspec.Struct):
    """Queues in the order of their names; the cursor is what to ask for as `after` next."""

    queues: list[QueueView]
    cursor: str | None = None


class Count(msgspec.Struct):
    count: int


class Level(msgspec.Struct):
    priority: int
    count: int


class BacklogView(msgspec.Struct, kw_only=True):
    """What waits in a queue: ready messages by priority, the most urgent level first, and how many scheduled
    ones were tried before. Unless `whole`, there are at least so many."""

    queue: str
    levels: list[Level]
    levels_whole: bool
    retrying: int
    retrying_whole: bool


class Backlogs(msgspec.Struct):
    backlogs: list[BacklogView]


# --- deliveries -----------------------------------------------------------------------------------


class DeliveryView(msgspec.Struct, kw_only=True):
    """A message in the hands of one consumer. The `receipt` proves it, until the `deadline`."""

    receipt: str
    id: str
    queue: str
    kind: str
    content_type: str
    headers: dict[str, str]
    priority: int
    attempt: int
    deliveries: int
    max_attempts: int
    deadline: int
    put_at: int
    due: int
    body: Any | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    ack_timeout: int | None = None
    correlation_id: str | None = None
    #: What an earlier attempt saved.
    checkpoint: Any = None


class Deliveries(msgspec.Struct):
    deliveries: list[DeliveryView]


def delivery(leased: Leased) -> DeliveryView:
    message = leased.message
    of_message = (
        "id",
        "queue",
        "kind",
        "content_type",
        "headers",
        "priority",
        "put_at",
        "due",
        "correlation_id",
    )
    of_lease = ("attempt", "deliveries", "max_attempts", "deadline", "ack_timeout")
    return DeliveryView(
        receipt=receipt_text(leased.receipt),
        **{name: getattr(message, name) for name in of_message},
        **{name: getattr(leased, name) for name in of_lease},
        **readable(message),
        checkpoint=_checkpoint(leased.checkpoint),
    )


def _checkpoint(saved: bytes | None) -> Any:
    """What was saved as JSON; what another door saved as it liked is base64."""
    try:
        return None if saved is None else msgspec.json.decode(saved)
    except msgspec.DecodeError:
        return base64.b64encode(saved or b"").decode()


def receipt_text(receipt: Receipt) -> str:
    """One word for a path: not to be read, only to be handed back."""
    return base64.urlsafe_b64encode("\0".join(receipt).encode()).decode().rstrip("=")


def read_receipt(text: str) -> Receipt:
    try:
        whole = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
        queue, id, token = whole.split("\0")
    except ValueError:
        raise InvalidInput(f"receipt: {text!r:.80} is not one of ours") from None
    return Receipt(queue, id, token)
