"""The bounds of everything, and the checks that hold input to them: InvalidInput, and nothing changed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from postroom.duration import MAX_SPAN
from postroom.errors import InvalidInput
from postroom.ids import is_id

JSON = "application/json"
BINARY = "application/octet-stream"
#: Decoding these runs code that a stranger chose.
FORBIDDEN_CONTENT = re.compile("pickle|python-serialize|marshal", re.IGNORECASE)

#: The most items of one call, and the most bytes of bodies that one call takes or gives.
MAX_BATCH = 1_000
MAX_PUT_BYTES = 16 * 2**20
MAX_CLAIM_BYTES = 4 * 2**20
#: The largest body an engine takes unless it was opened with another `max_body`.
MAX_BODY = 16 * 2**20
MAX_HEADER_BYTES = 64 * 2**10
MAX_CHECKPOINT = 64 * 2**10
MAX_RECORD = 64 * 2**10
MAX_NAME = 200
MAX_KEY = 1_000
MAX_PRIORITY = 255
MAX_ATTEMPTS = 1_000
#: How often work was given more time is counted up to here.
MAX_EXTENDED = 255
#: Attempts kept with a message, ids kept in a log entry, entries kept in a log and in a topic.
KEPT_ATTEMPTS = 20
KEPT_IDS = 50
LOG_LIMIT = 10_000
TOPIC_LIMIT = 10_000
#: Whoever publishes may have a topic keep more or fewer, up to this.
MAX_TOPIC = 100_000
#: How long a topic keeps an entry (ms), and the largest entry it takes.
TOPIC_AGE = 24 * 3_600_000
#: What operators did is asked for months later.
AUDIT_AGE = 365 * TOPIC_AGE
AUDIT = "audit"
MAX_TOPIC_ENTRY = 2**20

#: An engine that goes over rows to count them goes over so many in one call.
MAX_TALLY = 100_000
#: Where no index tells what is asked of messages, so many of them are looked at, the next ones.
MAX_LOOKED_AT = 1_000

#: 2025-01-01 UTC. Order counts 32 ticks a millisecond from here in 45 bits: until 2059.
EPOCH = 1_735_689_600_000
LAST_DUE = EPOCH + 2**45 // 32 - 1

_NAME = re.compile(r"[^\x00-\x1f\x7f{}]+")


def check_name(name: str, what: str = "queue name") -> str:
    """A name that every store can carry: 1–200 bytes of UTF-8 without control characters or braces."""
    if not isinstance(name, str):
        raise InvalidInput(f"{what}: expected text, not {name!r:.80}")
    if not _NAME.fullmatch(name) or len(_utf8(name, what)) > MAX_NAME:
        allowed = f"1 to {MAX_NAME} bytes without control characters or braces"
        raise InvalidInput(f"{what}: {name!r:.80} must be {allowed}")
    return name


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what}: {text!r:.80} is not valid UTF-8") from None


def check_key(key: str, what: str) -> str:
    """A record's key: 1–1,000 bytes of UTF-8, whatever they are."""
    if not isinstance(key, str) or not 1 <= len(_utf8(key, what)) <= MAX_KEY:
        raise InvalidInput(f"{what}: {key!r:.80} must be 1 to {MAX_KEY:,} bytes of text")
    return key


def cut_text(text: str, what: str) -> str:
    """Text for people to read, made of characters every store can keep, and not too much of it."""
    if not isinstance(text, str):
        raise InvalidInput(f"{what}: expected text, not {text!r:.80}")
    return text[:MAX_NAME].encode("utf-8", "replace").decode()


def check_id(id: str) -> None:
    if not isinstance(id, str) or not is_id(id):
        raise InvalidInput(f"id: {id!r:.80} is not 32 lower-case hex digits")


def check_between(name: str, value: int, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise InvalidInput(f"{name}: {value!r:.80} is not between {least:,} and {most:,}")


def check_content_type(content_type: str) -> None:
    check_name(content_type, "content_type")
    if FORBIDDEN_CONTENT.search(content_type):
        raise InvalidInput(f"content_type: {content_type!r} is refused, because decoding it runs code")


def check_headers(headers: Mapping[str, str]) -> None:
    size = 0
    for key, value in headers.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidInput(f"headers: {key!r:.80} and its value must both be text")
        size += len(_utf8(key, "header")) + len(_utf8(value, "header"))
    if size > MAX_HEADER_BYTES:
        raise InvalidInput(f"headers: {size:,} bytes are more than {MAX_HEADER_BYTES:,}")


def check_when(delay: int, due: int | None) -> None:
    """Refuse a time to come back at that makes no sense, whatever the engine's clock says."""
    check_between("delay", delay, 0, MAX_SPAN)
    if due is not None:
        check_between("due", due, 0, LAST_DUE)


def when(delay: int, due: int | None, now: int) -> int:
    """The time to come back at. Beyond the year 2059, where order ends, it is the last moment there is."""
    return min(now + delay if due is None else due, LAST_DUE)


def topic_age(topic: str) -> int:
    """How long a topic keeps an entry (ms)."""
    return AUDIT_AGE if topic == AUDIT else TOPIC_AGE


def check_publish(topic: str, entries: Sequence[bytes], keep: int) -> None:
    check_name(topic, "topic")
    check_between("keep", keep, 1, MAX_TOPIC)
    check_batch(entries)
    sizes = [len(entry) for entry in entries]
    if max(sizes, default=0) > MAX_TOPIC_ENTRY or sum(sizes) > MAX_PUT_BYTES:
        raise InvalidInput(
            f"publish: an entry is at most {MAX_TOPIC_ENTRY:,} bytes, a call {MAX_PUT_BYTES:,}"
        )


def check_batch(items: Sequence[object]) -> None:
    if len(items) > MAX_BATCH:
        raise InvalidInput(f"{len(items):,} items are more than {MAX_BATCH:,} in one call")


def check_limit(limit: int) -> None:
    check_between("limit", limit, 1, MAX_BATCH)


def check_after(after: str) -> None:
    """A name behind which a list begins; "" for its beginning."""
    if not isinstance(after, str):
        raise InvalidInput(f"after: expected text, not {after!r:.80}")
    _utf8(after, "after")


def check_edges(edges: Sequence[int]) -> None:
    """Moments between which to count: at least two, none before the one in front of it."""
    check_batch(edges)
    if len(edges) < 2 or any(later < earlier for earlier, later in itertools.pairwise(edges)):
        raise InvalidInput("edges: expected two moments or more, in their order")
    for edge in edges:
        check_between("edge", edge, 0, LAST_DUE + 1)


def check_span(name: str, span: int | None) -> None:
    if span is not None:
        check_between(name, span, 1, MAX_SPAN)


def check_record(kind: str, key: str, value: bytes) -> None:
    check_name(kind, "record kind")
    check_key(key, "record key")
    if len(value) > MAX_RECORD:
        raise InvalidInput(f"record: {len(value):,} bytes are more than {MAX_RECORD:,}")


def check_checkpoint(checkpoint: bytes | None) -> None:
    if checkpoint is not None and len(checkpoint) > MAX_CHECKPOINT:
        raise InvalidInput(f"checkpoint: {len(checkpoint):,} bytes are more than {MAX_CHECKPOINT:,}")
