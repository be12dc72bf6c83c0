"""What can be set, and what is a valid value: one setting at a time, whatever layer it comes from.

What a queue can be told, and what of it is valid, is asked of `Policy` itself: a new policy
setting is at once a setting of the file and of the environment, with the policy's own default.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

from postroom.duration import format_duration, milliseconds
from postroom.errors import InvalidInput
from postroom.limits import MAX_BATCH, check_name
from postroom.policy import SETTINGS, Policy, Rate
from postroom.rotation import ORDERS

#: TOML has no null: this turns off what can be turned off.
OFF = "off"
#: Other words for a setting, as Celery and people say them; n retries are n + 1 attempts.
ALIASES = {"visibility_timeout": "ack_timeout", "retries": "max_attempts"}
#: The longest lease that follows from a visibility_timeout, and its share of it.
_LEASE, _LEASE_SHARE = 30_000, 3

Reader = Callable[[str, Any], Any]


def canonical(name: str) -> str:
    """The setting that a name stands for."""
    return ALIASES.get(name, name)


def lease_within(visibility_timeout: str) -> str:
    """The lease for work that is to come back after this long, unless it is settled.

    A part of it: else nobody could tell a worker that died from work that took too long.
    """
    return format_duration(min(_LEASE, max(1, milliseconds(visibility_timeout) // _LEASE_SHARE)))


class Level(NamedTuple):
    """What one place may give: how each setting is read there, and what "off" stands for."""

    readers: Mapping[str, Reader]
    off: Mapping[str, int | None]

    def written(self, name: str, value: Any) -> Any:
        """The value in the one form in which Postroom writes it: 90 and "90s" are both "1m30s".

        None is off. Raises InvalidInput, saying what is expected.
        """
        if value in (OFF, None) and name in self.off:
            value = self.off[name]
        elif value is None:
            raise InvalidInput(f"{name}: cannot be off")
        return self.readers[name](name, value)


def from_variable(name: str, text: str) -> Any:
    """The text of an environment variable as the setting's type; what does not fit stays text."""
    if name in _NAMES:
        return [part.strip() for part in text.split(",")]
    return int(text) if name in _WHOLE and re.fullmatch(r"\d{1,18}", text, re.ASCII) else text


def without_secrets(value: Any) -> Any:
    """A value as it may be shown: a password inside a URL is masked."""
    if not isinstance(value, str) or "://" not in value:
        return value
    masked = re.sub(r"(://[^:/?#]*):.*@", r"\1:***@", value)
    return re.sub(r"(?i)((?:password|token|secret)=)[^&#]*", r"\1***", masked)


# ---- Settings of a queue --------------------------------------------------------------------------


def _of_policy(name: str, value: Any) -> Any:
    if bool in _TYPES[canonical(name)]:
        value = _flag(name, value)
    if name == "labels" and not isinstance(value, Mapping):
        raise InvalidInput(f"{name}: expected a table such as {{ low = 0, normal = 5 }}, not {value!r}")
    argument = name if name in SETTINGS else canonical(name)
    return Policy(**{argument: value}).to_text()[canonical(name)]


def _flag(name: str, value: Any) -> bool:
    words = {"true": True, "on": True, "false": False, OFF: False}
    flag = words.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(flag, bool):
        raise InvalidInput(f"{name}: {value!r} is neither true nor false")
    return flag


# ---- Settings of the room -------------------------------------------------------------------------


def _url(name: str, value: Any) -> str:
    # The value is not repeated: it may hold a password.
    if not isinstance(value, str) or not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", value):
        raise InvalidInput(f'{name}: expected a URL such as "sqlite:///jobs.db"')
    scheme, colon, rest = value.partition(":")
    return scheme.lower() + colon + rest  # capitals mean the same, and from here on it is compared


def _optional_url(name: str, value: Any) -> str | None:
    return None if value is None else _url(name, value)


def _durability(name: str, value: Any) -> str:
    if value not in ("stored", "replicated"):
        raise InvalidInput(f'{name}: {value!r} is neither "stored" nor "replicated"')
    return str(value)


def _app(name: str, value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not _APP.fullmatch(value)):
        raise InvalidInput(f'{name}: expected "module:variable", such as "shop.jobs:handlers", not {value!r}')
    return value


_APP = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(f"{name}: {value!r} is not a whole number from 1")
    return value


def _span(name: str, value: Any) -> str:
    span = milliseconds(value, name)
    if span == 0:
        raise InvalidInput(f"{name}: must be longer than nothing")
    return format_duration(span)


def _batch(name: str, value: Any, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_BATCH:
        raise InvalidInput(f"{name}: {value!r} is not a whole number from {least} to {MAX_BATCH:,}")
    return value


_SIZE = re.compile(r"\s*(\d{1,15})\s*([KMG]?)B?\s*", re.ASCII | re.IGNORECASE)
_BYTES = {"G": 2**30, "M": 2**20, "K": 2**10, "": 1}


def size_in_bytes(value: int | str, name: str = "size") -> int:
    """A number of bytes, also from text such as "512KB" or "16MB" (1 KB is 1,024 bytes)."""
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    size = int(match[1]) * _BYTES[match[2].upper()] if match else value
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InvalidInput(f'{name}: {value!r} is not a size such as "512KB", "16MB" or a number of bytes')
    return size


def _size(name: str, value: Any) -> str:
    size = size_in_bytes(value, name)
    unit = next(unit for unit, count in _BYTES.items() if size % count == 0)
    return f"{size // _BYTES[unit]}{unit}B"


# ---- Settings of the server -----------------------------------------------------------------------


def _host(name: str, value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[\w.:%-]+", value, re.ASCII):
        raise InvalidInput(f'{name}: expected an address such as "127.0.0.1" or "0.0.0.0", not {value!r}')
    return value


def _port(name: str, value: Any) -> int | None:
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65_535
    ):
        raise InvalidInput(f"{name}: {value!r} is not a port, a whole number from 0 to 65535")
    return value


def _file(name: str, value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise InvalidInput(f"{name}: expected the name of a file, not {value!r}")
    return value


def _given_file(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(
            f'{name}: expected the name of a file such as "schemas/invoice.json", not {value!r}'
        )
    return value


def _names(name: str, value: Any) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise InvalidInput(f'{name}: expected texts such as ["one", "two"], not {value!r}')
    return list(value)


def _patterns(name: str, value: Any) -> list[str] | None:
    patterns = _names(name, [value] if isinstance(value, str) else value)
    for pattern in patterns or ():
        try:
            with warnings.catch_warnings(action="ignore"):  # it still means what it means today
                re.compile(pattern)
        except (re.error, RecursionError) as error:
            raise InvalidInput(f"{name}: {pattern!r:.80} is not a regular expression: {error}") from None
    return patterns


def _pace(name: str, value: Any) -> str | None:
    return None if value is None else str(Rate.parse(value, name))


#: Colours that a badge can have, each readable in the light and in the dark.
COLOURS = ("grey", "blue", "green", "amber", "red")


def _environment(name: str, value: Any) -> str | None:
    if value is not None and (
        not isinstance(value, str) or not re.fullmatch(r"[^\s\x00-\x1f].{0,29}", value)
    ):
        raise InvalidInput(f'{name}: expected up to 30 characters such as "production", not {value!r:.80}')
    return value


def _colour(name: str, value: Any) -> str:
    if value not in COLOURS:
        raise InvalidInput(f"{name}: {value!r:.80} is not one of {', '.join(COLOURS)}")
    return str(value)


#: What a link to a trace may have in the place of which the message's own stands.
_PLACES = re.compile(r"\{(trace_id|span_id)\}")


def _trace_link(name: str, value: Any) -> str | None:
    """A link that a browser opens: nothing but the web, and in its host nothing that a message decides."""
    if value is None:
        return None
    if not isinstance(value, str) or not re.fullmatch(r"https?://[\w.:\[\]-]+(/[!-~]*)?", value, re.ASCII):
        raise InvalidInput(f'{name}: expected "https://traces.example/trace/{{trace_id}}", not {value!r:.80}')
    rest = _PLACES.sub("", value)
    if "{trace_id}" not in value or len(value) > 1_000 or any(sign in rest for sign in "{}<>\"'\\`"):
        raise InvalidInput(f"{name}: {value!r:.80} has no {{trace_id}}, or more than that and {{span_id}}")
    return value


def _auth(name: str, value: Any) -> str:
    if value not in ("auto", "required"):
        raise InvalidInput(f'{name}: {value!r} is neither "auto" nor "required"')
    return str(value)


# ---- Settings of a worker -------------------------------------------------------------------------


def _optional_batch(name: str, value: Any) -> int | None:
    return None if value is None else _batch(name, value)


def _prefetch(name: str, value: Any) -> int | None:
    return None if value is None else _batch(name, value, least=0)


def _queues(name: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not value:
        raise InvalidInput(f'{name}: expected names such as ["emails", "reports"], not {value!r}')
    for queue in value:
        check_name(queue)
    if twice := [queue for queue in value if value.count(queue) > 1]:
        raise InvalidInput(f"{name}: {twice[0]!r} is there twice")
    return list(value)


def _order(name: str, value: Any) -> str:
    if value not in ORDERS:
        raise InvalidInput(f"{name}: {value!r} is not one of {', '.join(ORDERS)}")
    return str(value)


def _weights(name: str, value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{name}: expected a table such as {{ emails = 3, reports = 1 }}, not {value!r}")
    return {check_name(queue): _positive(name, weight) for queue, weight in value.items()}


def _tasks(name: str, value: Any) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(task, str) and task for task in value):
        raise InvalidInput(f'{name}: expected names of tasks such as ["shop.pay", "mail.*"], not {value!r}')
    return list(value)


# ---- The tables -----------------------------------------------------------------------------------

#: Settings of the room, and how each is read; all others belong to a queue's policy.
ROOM: dict[str, Reader] = {
    "url": _url,
    "app": _app,
    "sweep_interval": _span,
    "sweep_batch": _batch,
    "max_body": _size,
    "keeper_ttl": _span,
    "poll_timeout": _span,
    "durability": _durability,
    "replication_timeout": _span,
    "spool": _optional_url,
    "health_check_timeout": _span,
    "spool_capacity": _positive,
    "spool_bytes": _size,
    "idempotency_every_task": _flag,
    "idempotency_ttl": _span,
    "telemetry": _flag,
    "tracing": _flag,
    "http_host": _host,
    "http_port": _port,
    "http_tls_cert": _file,
    "http_tls_key": _file,
    "http_auth": _auth,
    "http_read_only": _flag,
    "http_allow_hosts": _names,
    "http_rate": _pace,
    "http_redact": _names,
    "http_redact_patterns": _patterns,
    "http_services": _names,
    "http_environment": _environment,
    "http_environment_colour": _colour,
    "http_trace_link": _trace_link,
}

#: Tables of the file whose settings begin with the table's name everywhere else.
TABLES = ("idempotency", "http")
#: Several names: in a variable they stand between commas. A pattern may hold a comma: there it is one.
_NAMES = {"http_allow_hosts", "http_redact", "http_services"}

_POLICY_DEFAULTS = Policy.__init__.__kwdefaults__ or {}
_TYPES = {name: get_args(hint) or (hint,) for name, hint in get_type_hints(Policy.__init__).items()}
#: Whole numbers and nothing else: their variables are read as numbers.
_WHOLE = {name for name in SETTINGS if int in _TYPES[name] and str not in _TYPES[name]} | {
    "sweep_batch",
    "spool_capacity",
    "http_port",
}

#: What "off" stands for where it can be said: no limit, or no time at all.
TURNED_OFF: dict[str, int | None] = {
    "app": None,
    "spool": None,
    **dict.fromkeys(("http_port", "http_tls_cert", "http_tls_key", "http_rate")),
    **dict.fromkeys(("http_environment", "http_trace_link")),
    **dict.fromkeys(("http_allow_hosts", "http_redact", "http_redact_patterns", "http_services")),
    **{name: None for name in SETTINGS - {"max_attempts", "retries"} if NoneType in _TYPES[name]},
    **{name: 0 for name, default in _POLICY_DEFAULTS.items() if default == 0 and default is not False},
}

#: Every setting of a queue, under its own name, in the order in which it is shown.
POLICY = tuple(name for name in _POLICY_DEFAULTS if name not in ALIASES)
#: What a queue's table says about one worker's share of it; no policy: nothing of it is stored.
SHARE: dict[str, Reader] = {"concurrency": _optional_batch, "prefetch": _prefetch}
#: What Celery sends to the queue; no policy either.
ROUTING: dict[str, Reader] = {"tasks": _tasks}
#: What the top level and a queue's table may hold.
TOP_LEVEL = (*ROOM, *POLICY, *ALIASES)
QUEUE_LEVEL = (*POLICY, *SHARE, *ROUTING, *ALIASES)
#: What a role's table may hold, and what it is unless it is given; `queues` must be.
ROLE_LEVEL = ("queues", "concurrency", "prefetch", "order", "weights", "stop_timeout")
ROLE_DEFAULTS: dict[str, Any] = {
    "concurrency": 1, "prefetch": None, "order": ORDERS[0], "weights": {}, "stop_timeout": "30s",
}  # fmt: skip

_FOR_QUEUES: dict[str, Reader] = dict.fromkeys((*POLICY, *ALIASES), _of_policy)
TOP = Level(ROOM | _FOR_QUEUES, TURNED_OFF)
QUEUE = Level(_FOR_QUEUES | SHARE | ROUTING, TURNED_OFF | dict.fromkeys((*SHARE, *ROUTING)))
ROLE = Level(
    dict(zip(ROLE_LEVEL, (_queues, _batch, _prefetch, _order, _weights, _span), strict=True)),
    {"prefetch": None},
)

#: What is said of messages of one kind.
KIND = Level({"schema": _given_file}, {})

_POLICY_TEXT = Policy().to_text()
DEFAULTS: dict[str, Any] = {
    "url": "sqlite:///postroom.db",
    "app": None,
    "sweep_interval": "5s",
    "sweep_batch": 100,
    "max_body": "16MB",
    "keeper_ttl": "30s",
    "poll_timeout": "5s",
    "durability": "stored",
    "replication_timeout": "1s",
    "spool": None,
    "health_check_timeout": "2s",
    "spool_capacity": 100_000,
    "spool_bytes": "512MB",
    "idempotency_every_task": False,
    "idempotency_ttl": "1d",
    "telemetry": False,
    "tracing": False,
    "http_host": "127.0.0.1",
    "http_port": None,
    "http_tls_cert": None,
    "http_tls_key": None,
    "http_auth": "auto",
    "http_read_only": False,
    "http_allow_hosts": None,
    "http_rate": "500/s",
    "http_redact": None,
    "http_redact_patterns": None,
    "http_services": None,
    "http_environment": None,
    "http_environment_colour": "grey",
    "http_trace_link": None,
    **{name: _POLICY_TEXT[name] for name in POLICY},
}
