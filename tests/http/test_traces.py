"""A message's trace: where it is looked at, and that no header makes another link of it."""

from __future__ import annotations

import json

import pytest
from litestar.testing import TestClient

import postroom
from postroom.http import app
from postroom.http.traces import trace_link
from postroom.model import Message

TEMPLATE = "https://traces.example/trace/{trace_id}?span={span_id}"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
LINK = f"https://traces.example/trace/{TRACE}?span={SPAN}"


def message(headers: dict[str, str]) -> Message:
    return Message(id="0" * 32, queue="q", body=b"1", put_at=0, due=0, headers=headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"traceparent": PARENT},
        {"Traceparent": PARENT},
        {"traceparent": f"cc-{TRACE}-{SPAN}-01-what-comes-later"},
        {"k": json.dumps({"h": {"task": "pay", "id": "1", "traceparent": PARENT}})},
        {"task": "pay", "traceparent": PARENT},
    ],
)
def test_a_trace_is_found_in_the_headers_also_of_celery(headers: dict[str, str]) -> None:
    assert trace_link(TEMPLATE, message(headers)) == LINK
    assert trace_link(None, message(headers)) is None


@pytest.mark.parametrize(
    "parent",
    [
        "", "x", f"00-{TRACE}-{SPAN}", f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01\n",
        f'00-{TRACE}"onclick-{SPAN}-01', "javascript:alert(1)",
    ],
)  # fmt: skip
def test_what_is_no_trace_makes_no_link(parent: str) -> None:
    assert trace_link(TEMPLATE, message({"traceparent": parent})) is None


def test_a_message_tells_where_its_trace_is() -> None:
    with postroom.open("memory://", http_trace_link=TEMPLATE) as room:
        id = room.queue("q").put(1, headers={"traceparent": PARENT}).id
        plain = room.queue("q").put(1).id
        with TestClient(app(room, keeper=False)) as client:
            found = [client.get(f"/api/v1/queues/q/messages/{each}").json() for each in (id, plain)]
    assert [each["trace_link"] for each in found] == [LINK, None]
