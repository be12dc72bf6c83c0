"""How one request looks at messages: without secrets, or raw, which is a right of its own and audited.

Every route that shows a body, headers, arguments, an error or whatever else came with a message shows it
through this. Who claims a message works on it, and gets it as it is: that is delivery, not looking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from litestar import Request
from litestar.di import NamedDependency
from litestar.params import FromQuery
from msgspec import UNSET

from postroom.audit import Act
from postroom.call import payload_of
from postroom.deadletters import DeadLetter
from postroom.http.auth import Principal, check_raw, principal_of
from postroom.http.redaction import HIDDEN, Redaction
from postroom.http.roles import Action
from postroom.http.service import Desk
from postroom.http.traces import trace_link
from postroom.http.views import MessageView, view
from postroom.logs import LogEntry
from postroom.model import Attempt, Entry, Failure

T = TypeVar("T")
#: What a letter tells; its bytes stay bytes if so.
Tell = Callable[[DeadLetter, bool], dict[str, Any]]


class Sight:
    """What one request may see. Only with `raw` everything, and then the audit says so before it is shown.

    `as_seen` is for conditions of who may not look at it raw: what is hidden must not be found by guessing.
    """

    def __init__(self, desk: Desk, raw: Principal | None = None, *, may_raw: bool = False) -> None:
        self._desk, self._raw = desk, raw
        self.as_seen: Callable[[Any], Any] | None = None if may_raw else desk.redaction.value

    async def messages(self, entries: Sequence[Entry]) -> list[MessageView]:
        """These messages, of one queue or of several."""
        await self._note([(entry.message.queue, entry.id) for entry in entries])
        return await self._desk.work(self._views, entries)

    async def message(self, entry: Entry) -> MessageView:
        """One message, with its payload as people read it."""
        (seen,) = await self.messages([entry])
        payload = await self._desk.work(payload_of, entry.message)
        if not self._raw:
            payload = msgspec.structs.replace(payload, value=self._desk.redaction.value(payload.value))
        return msgspec.structs.replace(seen, payload=payload)

    def _views(self, entries: Sequence[Entry]) -> list[MessageView]:
        seen = [self._view(entry) for entry in entries]
        return seen if self._raw else [message(self._desk.redaction, each) for each in seen]

    def _view(self, entry: Entry) -> MessageView:
        link = trace_link(self._desk.room.config.http.trace_link, entry.message)
        return msgspec.structs.replace(view(entry), trace_link=link)

    async def letters(self, letters: Sequence[DeadLetter]) -> list[dict[str, Any]]:
        """These dead letters, of one queue or of several."""
        return await self._shown(letters, _told)

    async def letter(self, letter: DeadLetter) -> dict[str, Any]:
        """One dead letter, with its payload as people edit it."""
        return (await self._shown([letter], _told_whole))[0]

    async def _shown(self, letters: Sequence[DeadLetter], tell: Tell) -> list[dict[str, Any]]:
        await self._note([(letter.queue, letter.id) for letter in letters])
        return await self._desk.work(self._letters, letters, tell)

    def _letters(self, letters: Sequence[DeadLetter], tell: Tell) -> list[dict[str, Any]]:
        if self._raw:
            return [tell(letter, False) for letter in letters]
        # Bytes that were text or base64 by then would pass for something that can be looked through.
        hidden: list[dict[str, Any]] = self._desk.redaction.value([tell(letter, True) for letter in letters])
        return hidden

    async def _note(self, seen: list[tuple[str, str]]) -> None:
        if self._raw is not None and seen:
            queues = {queue for queue, _ in seen}
            where = queues.pop() if len(queues) == 1 else ""
            ids = [id for _, id in seen]
            await self._desk.call(check_raw, self._raw, self._desk.room.engine, where, ids)


#: How a route asks for it; the route then takes `?raw=true`.
WithSight = NamedDependency[Sight]


async def provide_sight(
    request: Request[Any, Any, Any], desk: NamedDependency[Desk], raw: FromQuery[bool] = False
) -> Sight:
    """Raises Forbidden before anything is looked up for somebody who may not see it raw."""
    principal = principal_of(request)
    if raw:
        principal.check(Action.RAW)
    return Sight(desk, principal if raw else None, may_raw=principal.may(Action.RAW))


def _told(letter: DeadLetter, bytes_stay: bool) -> dict[str, Any]:
    told = letter.as_dict(bytes_stay=bytes_stay)
    return {**told, "failed_at": letter.died_at, "last_error": letter.failure.summary}


def _told_whole(letter: DeadLetter, bytes_stay: bool) -> dict[str, Any]:
    return {**_told(letter, bytes_stay), "payload": msgspec.to_builtins(letter.payload)}


# ---- What is hidden where -------------------------------------------------------------------------


def message(redaction: Redaction, seen: MessageView) -> MessageView:
    """A message without secrets. Bytes that are neither JSON nor text are hidden as a whole."""
    text = redaction.text
    body = HIDDEN if seen.body_base64 is not UNSET else redaction.value(seen.body)
    return msgspec.structs.replace(
        seen,
        body=body,
        body_base64=UNSET,
        headers=redaction.headers(seen.headers),
        correlation_id=seen.correlation_id and text(seen.correlation_id),
        unique_key=seen.unique_key and text(seen.unique_key),
        attempts=[_attempt(redaction, each) for each in seen.attempts],
        failure=seen.failure and _failure(redaction, seen.failure),
        last_error=seen.last_error and text(seen.last_error),
    )


def _attempt(redaction: Redaction, attempt: Attempt) -> Attempt:
    return msgspec.structs.replace(attempt, error=redaction.text(attempt.error))


def _failure(redaction: Redaction, failure: Failure) -> Failure:
    told = {name: redaction.text(getattr(failure, name)) for name in ("text", "traceback", "signature")}
    return msgspec.structs.replace(failure, **told)


def lines(redaction: Redaction, entries: Sequence[LogEntry]) -> list[LogEntry]:
    """Lines of a history: what they say beside their counts may be the text of an error."""
    return [msgspec.structs.replace(each, info=redaction.value(each.info)) for each in entries]


def acts(redaction: Redaction, found: Sequence[Act]) -> list[Act]:
    """Acts of operators: a filter may name a secret, and a reason hold one."""
    return [msgspec.structs.replace(each, info=redaction.value(each.info)) for each in found]


def texts(redaction: Redaction, told: T) -> T:
    """A struct whose names are ours, or those of queues, and hide nothing: with its texts redacted."""
    return msgspec.convert(redaction.texts(msgspec.to_builtins(told)), type(told))


def values(redaction: Redaction, told: T) -> T:
    """A struct that holds what others named: a filter, a result."""
    return msgspec.convert(redaction.value(msgspec.to_builtins(told)), type(told))
