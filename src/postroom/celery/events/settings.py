"""What an events app is made with, and what of it the environment says."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from postroom.celery.events.ladder import DEFAULT_RUNGS, Ladder
from postroom.celery.events.topology import Archive
from postroom.duration import Duration, milliseconds
from postroom.errors import ConfigError, InvalidInput

log: logging.Logger = logging.getLogger(__name__)

MAX_RETRIES = 10
_VARIABLE, _OLD_VARIABLE = "POSTROOM_EVENTS_MAX_RETRIES", "AMQP_EVENTS_MAX_RETRIES"

#: Of every events app, unless its own configuration says otherwise.
DEFAULTS: dict[str, Any] = {
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "task_acks_on_failure_or_timeout": False,
    "task_ignore_result": True,
    "task_serializer": "json",
    "broker_connection_retry_on_startup": True,
    # A channel that the broker closes, as after half an hour without an ack, must not end the worker.
    "broker_channel_error_retry": True,
    "worker_consumer": "postroom.celery.events.consumer:Consumer",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """How events of this service wait, fail and end. See `events_app` for what each means."""

    max_retries: int
    ladder: Ladder
    archive: Archive | None
    one_queue: bool
    queue_type: str
    unrouted_is_error: bool
    version: int


def read(
    *,
    queues: str = "event",
    rungs: int = DEFAULT_RUNGS,
    fine: bool = False,
    archive: bool = True,
    archive_retention: Duration = "7d",
    archive_most: int = 10_000,
    max_retries: int | None = None,
    unrouted: str = "warn",
    queue_type: str = "quorum",
    topology_version: int = 1,
) -> Settings:
    """The settings. Raises InvalidInput or ConfigError."""
    _one_of("queues", queues, ("event", "one"))
    _one_of("unrouted", unrouted, ("warn", "error"))
    _one_of("queue_type", queue_type, ("quorum", "classic"))
    _at_least_one("topology_version", topology_version)
    _at_least_one("archive_most", archive_most)
    return Settings(
        max_retries=_retries(max_retries),
        ladder=Ladder.of(rungs, fine=fine),
        archive=Archive(milliseconds(archive_retention, "archive_retention"), archive_most)
        if archive
        else None,
        one_queue=queues == "one",
        queue_type=queue_type,
        unrouted_is_error=unrouted == "error",
        version=topology_version,
    )


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidInput(f"{name}: {value!r:.80} is not one of {', '.join(known)}")


def _at_least_one(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(f"{name}: {value!r:.80} is not a whole number from 1")


def _retries(given: int | None) -> int:
    if given is None:
        return _from_environment()
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise InvalidInput(f"max_retries: {given!r:.80} is not a whole number from 0")
    return given


def _from_environment() -> int:
    name = _VARIABLE if _VARIABLE in os.environ else _OLD_VARIABLE
    text = os.environ.get(name)
    if text is None:
        return MAX_RETRIES
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{name}: {text!r:.80} is not a whole number from 0")
    if name == _OLD_VARIABLE:
        _warn_once()
    return int(text)


@lru_cache(maxsize=1)
def _warn_once() -> None:
    log.warning(
        "%s is read in place of %s; please rename it", _OLD_VARIABLE, _VARIABLE,
        extra={"event": "events.old_variable"},
    )  # fmt: skip
