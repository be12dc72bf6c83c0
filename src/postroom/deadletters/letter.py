"""A dead letter as people ask for it: what it was to do, why it gave up, and everything in between."""

from __future__ import annotations

import base64
import enum
from typing import Any

import msgspec

from postroom.call import Call, Payload, call_of, payload_of
from postroom.model import Attempt, Entry, Failure

_NOBODY = Failure(type="Unknown")


class Classification(enum.StrEnum):
    """In which way a message came to its end."""

    CRASH_LOOP = "crash-loop"
    EXCEPTION = "exception"
    TIMEOUT = "timeout"
    EXPIRED = "expired"
    UNDECODABLE = "undecodable"
    REJECTED = "rejected"


#: Failures that the engine itself makes have no traceback: an exception of the same name is one of many.
_BY_ENGINE = {
    "LeaseExpired": Classification.CRASH_LOOP,
    "AckTimeout": Classification.TIMEOUT,
    "Expired": Classification.EXPIRED,
    "NoHandler": Classification.UNDECODABLE,
    "Rejected": Classification.REJECTED,
}
#: Exceptions that say more than that the work failed: ours, and those of Celery, kombu and billiard.
_BY_NAME = {
    "Bury": Classification.REJECTED,
    "Reject": Classification.REJECTED,
    "Undecodable": Classification.UNDECODABLE,
    "DecodeError": Classification.UNDECODABLE,
    "ContentDisallowed": Classification.UNDECODABLE,
    "InvalidTaskError": Classification.UNDECODABLE,
    "NotRegistered": Classification.UNDECODABLE,
    "WorkerLostError": Classification.CRASH_LOOP,
    "TimeLimitExceeded": Classification.TIMEOUT,
    "SoftTimeLimitExceeded": Classification.TIMEOUT,
    "TimeoutError": Classification.TIMEOUT,
}


def classify(failure: Failure) -> Classification:
    """The class of a failure; what nothing more is known about is an exception."""
    if not failure.traceback and failure.type in _BY_ENGINE:
        return _BY_ENGINE[failure.type]
    return _BY_NAME.get(failure.type, Classification.EXCEPTION)


class DeadLetter:
    """A dead message with its failure; cheap to make, the body is decoded when somebody asks."""

    __slots__ = ("_call", "entry")

    def __init__(self, entry: Entry) -> None:
        self.entry: Entry = entry
        self._call: Call | None = None

    @property
    def call(self) -> Call:
        if self._call is None:
            self._call = call_of(self.entry.message)
        return self._call

    @property
    def payload(self) -> Payload:
        """What people edit before a replay. Not in `as_dict`: a list would carry every body twice."""
        return payload_of(self.entry.message)

    @property
    def id(self) -> str:
        return self.entry.id

    @property
    def queue(self) -> str:
        return self.entry.message.queue

    @property
    def kind(self) -> str:
        return self.entry.message.kind

    @property
    def failure(self) -> Failure:
        return self.entry.failure or _NOBODY

    @property
    def group(self) -> str:
        return self.failure.fingerprint

    @property
    def died_at(self) -> int:
        return self.failure.failed_at

    @property
    def classification(self) -> Classification:
        return classify(self.failure)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        return self.entry.attempts

    @property
    def worker(self) -> str:
        """Who had it last; nobody, if it died without having been worked on."""
        return self.attempts[-1].consumer if self.attempts else ""

    @property
    def retries(self) -> int:
        """How often it was tried again after the first time."""
        return max(0, self.entry.attempt - 1) + (self.call.retries or 0)

    @property
    def replayed_as(self) -> tuple[str, ...]:
        return self.entry.replayed_as

    def as_dict(self, *, bytes_stay: bool = False) -> dict[str, Any]:
        """Everything about it, ready to be written as JSON; if bytes stay, by who sees to them first."""
        entry, failure, call = self.entry, self.failure, self.call
        return {
            "id": self.id,
            "queue": self.queue,
            "task_id": call.task_id,
            "task_name": call.task_name,
            "args": call.args if bytes_stay else plain(call.args),
            "kwargs": plain(call.kwargs),
            "exception": failure.summary,
            "traceback": failure.traceback,
            "classification": str(self.classification),
            "group": self.group,
            "retries": self.retries,
            "attempts": [msgspec.to_builtins(attempt) for attempt in self.attempts],
            "payload_hash": entry.payload_hash,
            "worker": self.worker,
            "put_at": entry.message.put_at,
            "due_at": entry.message.due,
            "died_at": self.died_at,
            "correlation_id": entry.message.correlation_id,
            "priority": entry.message.priority,
            "headers": entry.message.headers,
            "replayed_as": list(self.replayed_as),
        }


def plain(value: Any) -> Any:
    """A value that JSON can hold: bytes as text if they are any, else as base64."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value
