"""What the clients say to a server and how they understand its answers: one function a verb, for both."""

from __future__ import annotations

import base64
import operator
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from postroom import errors
from postroom.duration import Duration, milliseconds
from postroom.http.views import (
    Count,
    Deliveries,
    DeliveryView,
    MessageView,
    Page,
    Put,
    Puts,
    QueueList,
    QueueView,
)
from postroom.stats import QueueStats

T = TypeVar("T")

#: What an answer may take beyond the wait that was asked for (seconds).
_PATIENCE = 30.0


class Call(Generic[T]):
    """One request, what its answer is (without a `kind`: 204, empty), and which part of that is meant."""

    def __init__(
        self,
        method: str,
        path: str,
        kind: Any = None,
        pick: Callable[[Any], Any] | None = None,
        *,
        timeout: float = _PATIENCE,
        **request: Any,
    ) -> None:
        self.request: dict[str, Any] = {"method": method, "url": path, "timeout": timeout, **request}
        self._kind = kind
        self._pick = pick

    def read(self, answer: httpx.Response) -> T:
        """What the answer says; raises the error that it stands for."""
        if answer.status_code >= 400:
            raise _error(answer)
        found = self._content(answer)
        meant: T = self._pick(found) if self._pick else found
        return meant

    def _content(self, answer: httpx.Response) -> Any:
        if self._kind is None:
            if answer.status_code != 204:
                raise _unknown(answer)
            return None
        try:
            return msgspec.json.decode(answer.content, type=self._kind)
        except msgspec.DecodeError as error:
            raise _unknown(answer) from error


def options(url: str, token: str | None) -> dict[str, Any]:
    """What both clients tell httpx."""
    auth = {} if token is None else {"Authorization": f"Bearer {token}"}
    return {"base_url": f"{url.rstrip('/')}/api/v1", "headers": auth}


def away(error: Exception) -> errors.EngineUnavailable:
    return errors.EngineUnavailable(f"the server cannot be asked: {type(error).__name__} {error}".rstrip())


# --- the verbs --------------------------------------------------------------------------------


def put(queue: str, body: Any, key: str | None, said: Mapping[str, Any]) -> Call[Put]:
    return Call("POST", _at(queue, "messages"), Put, json=_plain({**_body(body), **said}), headers=_key(key))


def put_many(queue: str, bodies: Iterable[Any], key: str | None, said: Mapping[str, Any]) -> Call[list[Put]]:
    messages = [_plain({**_body(body), **said}) for body in bodies]
    puts, path = operator.attrgetter("puts"), _at(queue, "messages", "batch")
    return Call("POST", path, Puts, puts, json={"messages": messages}, headers=_key(key))


def claim(queue: str, n: int, wait: Duration, consumer: str) -> Call[list[DeliveryView]]:
    span = milliseconds(wait, "wait") / 1_000
    wanted = {"n": n, "wait": span, "consumer": consumer}
    deliveries = operator.attrgetter("deliveries")
    return Call("POST", _at(queue, "claim"), Deliveries, deliveries, json=wanted, timeout=_PATIENCE + span)


def _nothing(answer: object) -> None:
    """Of an answer that nobody wants to know more of than that it came."""


def settle(delivery: DeliveryView | str, verb: str, **said: Any) -> Call[None]:
    receipt = delivery if isinstance(delivery, str) else delivery.receipt
    return Call("POST", f"/deliveries/{receipt}/{verb}", json=_plain(said))


def get(queue: str, id: str, raw: bool) -> Call[MessageView]:
    return Call("GET", _at(queue, "messages", id), MessageView, params={"raw": raw})


def find(queue: str, state: str, narrow: Mapping[str, Any]) -> Call[Page]:
    return Call("GET", _at(queue, "messages"), Page, params=_plain({"state": state, **narrow}))


def operate(queue: str, id: str, verb: str, **said: Any) -> Call[None]:
    return Call("POST", _at(queue, "messages", id, verb), json=_plain(said))


def reschedule(queue: str, id: str, **said: Any) -> Call[None]:
    return Call("POST", _at(queue, "messages", id, "reschedule"), MessageView, _nothing, json=_plain(said))


def queues(after: str) -> Call[QueueList]:
    return Call("GET", "/queues", QueueList, params={"after": after})


def stats(queue: str) -> Call[QueueStats]:
    return Call("GET", _at(queue, "stats"), QueueStats)


def declare(queue: str, policy: Mapping[str, Any]) -> Call[QueueView]:
    return Call("PUT", _at(queue), QueueView, json=_plain(policy))


def pause(queue: str, reason: str, span: Any) -> Call[None]:
    said = _plain({"reason": reason, "span": span})
    return Call("POST", _at(queue, "pause"), QueueView, _nothing, json=said)


def resume(queue: str) -> Call[None]:
    return Call("POST", _at(queue, "resume"), QueueView, _nothing)


def purge(queue: str) -> Call[int]:
    return Call("POST", _at(queue, "purge"), Count, operator.attrgetter("count"))


def drop(queue: str, force: bool) -> Call[int]:
    count = operator.attrgetter("count")
    return Call("DELETE", _at(queue), Count, count, params={"force": force})


def _at(queue: str, *parts: str) -> str:
    return "/".join(["/queues", *(quote(part, safe="") for part in (queue, *parts))])


def _key(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Idempotency-Key": key}


def _body(body: Any) -> dict[str, Any]:
    if isinstance(body, bytes | bytearray | memoryview):
        return {"body_base64": base64.b64encode(body).decode()}
    return {"body": body}


def _plain(said: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON takes it: spans in seconds, moments in ISO 8601; what was not said is left out."""
    return {name: _value(value) for name, value in said.items() if value is not None}


def _value(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.isoformat() if isinstance(value, datetime) else value


# --- errors -----------------------------------------------------------------------------------

_BY_CODE = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.PostroomError)
}


def _unknown(answer: httpx.Response) -> errors.EngineUnavailable:
    """The answer of something between us and the server."""
    return errors.EngineUnavailable(f"the server answers {answer.status_code}, and not as we know it")


def _error(answer: httpx.Response) -> errors.PostroomError:
    try:
        problem: dict[str, Any] = msgspec.json.decode(answer.content)
        code, text = problem["code"], problem["detail"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return _unknown(answer)
    if code == "lease_lost":
        return errors.LeaseLost(text, outcome=problem.get("outcome", "lost"))
    if code == "queue_full":
        return errors.QueueFull(text, reason=problem.get("reason", "capacity"))
    if code == "rate_limited":
        return errors.RateLimited(text, retry_after=float(answer.headers.get("retry-after", 1)))
    if code == "uncertain":
        return errors.Uncertain(text, ids=problem.get("ids", ()))
    if code == "partial_put":
        return errors.PartialPut(problem.get("accepted", ()), problem.get("refused", ()))
    return _BY_CODE.get(code, errors.PostroomError)(text)
