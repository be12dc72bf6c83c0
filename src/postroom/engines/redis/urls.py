"""The URLs of the Redis engine, and what they say.

    redis://[user:password@]host[:port][/db]             one server; valkey:// is the same
    rediss://…                                           the same with TLS, also rediss+sentinel and -cluster
    redis+socket://[user:password@]/path/to.sock         a Unix socket
    redis+sentinel://[user:password@]h1,h2,h3/name[/db]  the primary called `name`
    redis+cluster://[user:password@]h1,h2                a cluster, by some of its nodes

Options stand behind a `?`: see `OPTIONS`. A password never appears in a message, a repr or a log.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote

from postroom.duration import milliseconds
from postroom.errors import ConfigError, InvalidInput, did_you_mean

Mode = Literal["single", "socket", "sentinel", "cluster"]

PORT = 6379
SENTINEL_PORT = 26379
#: It is part of every key, and a key is stored with every queue.
MAX_PREFIX = 100


class Node(NamedTuple):
    """Where one server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Tls:
    """How to trust a server, and how to be trusted; with nothing set, by the system's authorities."""

    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    check_hostname: bool = True
    cert_reqs: str = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that a URL says. Times are seconds."""

    mode: Mode = "single"
    scheme: str = "redis"
    #: Of a cluster some nodes, of a Sentinel setup its sentinels.
    nodes: tuple[Node, ...] = (Node("localhost", PORT),)
    path: str = ""
    service: str = ""
    db: int = 0
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    prefix: str = "postroom"
    socket_timeout: float = 5.0
    socket_connect_timeout: float = 2.0
    socket_keepalive: bool = True
    health_check_interval: float = 25.0
    retry_on_timeout: bool = False
    max_connections: int = 10
    client_name: str | None = None
    durability: str = "stored"
    replication_timeout: float = 1.0

    @property
    def where(self) -> str:
        """The URL without what is secret, for messages."""
        hosts = ",".join(map(str, self.nodes))
        tail = {"socket": self.path, "sentinel": f"{hosts}/{self.service}/{self.db}", "cluster": hosts}
        return f"{self.scheme}://{tail.get(self.mode, f'{hosts}/{self.db}')}"


def read(url: SplitResult) -> Settings:
    """What this URL says. Raises ConfigError for anything unknown or unreadable."""
    mode, tls = SCHEMES[url.scheme]
    # What stands behind a / ? or # that was meant as a part of a password is not repeated in any message.
    if url.fragment or "@" in url.query or ("@" in url.path and mode != "socket"):
        raise ConfigError("url: inside a password, / is written as %2F, ? as %3F, # as %23 and @ as %40")
    options = _options(url.query)
    credentials, _, hosts = url.netloc.rpartition("@")
    values: dict[str, Any] = {name: value for name, value in options.items() if not name.startswith("ssl")}
    values |= _credentials(credentials) | _place(mode, hosts, unquote(url.path), values)
    _check_sentinel_options(mode, values)
    return Settings(mode=mode, scheme=url.scheme, tls=_tls(tls, options), **values)


def _schemes() -> dict[str, tuple[Mode, bool]]:
    modes: dict[str, Mode] = {"": "single", "+sentinel": "sentinel", "+cluster": "cluster"}
    known: dict[str, tuple[Mode, bool]] = {}
    for server in ("redis", "valkey"):
        for suffix, mode in modes.items():
            known[server + suffix] = mode, False
            known[f"{server}s{suffix}"] = mode, True
        known[f"{server}+socket"] = "socket", False
    return known


#: Scheme → mode and whether it means TLS.
SCHEMES = _schemes()


# --- where --------------------------------------------------------------------------------------


def _place(mode: Mode, hosts: str, path: str, options: dict[str, Any]) -> dict[str, Any]:
    if mode == "socket":
        if hosts or path in ("", "/"):
            raise ConfigError("url: redis+socket:// takes a path, such as redis+socket:///run/redis.sock")
        return {"nodes": (), "path": path}
    port = SENTINEL_PORT if mode == "sentinel" else PORT
    place: dict[str, Any] = {"nodes": tuple(_node(text, port) for text in hosts.split(","))}
    if mode == "single" and len(place["nodes"]) > 1:
        raise ConfigError(
            "url: redis:// takes one host; several go with redis+sentinel:// or redis+cluster://"
        )
    steps = [step for step in path.split("/") if step]
    if mode == "sentinel":
        if not steps:
            raise ConfigError("url: redis+sentinel:// names its primary: redis+sentinel://h1,h2,h3/name/0")
        place["service"] = steps.pop(0)
    return place | _database(mode, steps, options)


def _database(mode: Mode, steps: list[str], options: dict[str, Any]) -> dict[str, Any]:
    if not steps:
        db = options.get("db", 0)
    elif len(steps) > 1 or not re.fullmatch("[0-9]{1,5}", steps[0]):
        raise ConfigError(f"url: the database is a number such as /0, not {'/'.join(steps)!r:.80}")
    else:
        db = int(steps[0])
    if mode == "cluster" and db:
        raise ConfigError("url: a cluster has only database 0; use ?prefix= to keep applications apart")
    return {"db": db}


def _node(text: str, default_port: int) -> Node:
    match = re.fullmatch(r"(?P<host>\[[^\[\]]+\]|[^:\[\]@\s]*)(:(?P<port>\d{1,5}))?", text)
    port = int(match["port"] or default_port) if match else 0
    if match is None or not 0 < port < 65_536 or not _is_host(match["host"]):
        # What cannot be read is not repeated: it may be a piece of a password.
        raise ConfigError("url: expected host or host:port (and @, : or / in a password as %40, %3A, %2F)")
    return Node(match["host"].strip("[]") or "localhost", port)


def _is_host(text: str) -> bool:
    try:
        return len(text.encode("idna")) <= 253  # what the resolver does, which is later and says less
    except UnicodeError:
        return False


def _credentials(text: str) -> dict[str, str]:
    username, _, password = text.partition(":")
    named = {"username": unquote(username), "password": unquote(password)}
    return {name: value for name, value in named.items() if value}


# --- options ------------------------------------------------------------------------------------


def _seconds(name: str, text: str) -> float:
    try:
        span = milliseconds(text, name)
    except InvalidInput as error:
        raise ConfigError(f"url: {error}") from None
    return span / 1_000


def _timeout(name: str, text: str) -> float:
    seconds = _seconds(name, text)
    if not 0 < seconds <= 3_600:
        raise ConfigError(f"url: {name} is between 1ms and 1h, not {text!r:.80}")
    return seconds


def _yes(name: str, text: str) -> bool:
    words = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
    if text.lower() not in words:
        raise ConfigError(f"url: {name} is yes or no, not {text!r:.80}")
    return words[text.lower()]


def _count(lowest: int, highest: int) -> Callable[[str, str], int]:
    def read_count(name: str, text: str) -> int:
        if not re.fullmatch("[0-9]{1,9}", text) or not lowest <= int(text) <= highest:
            raise ConfigError(f"url: {name} is a number from {lowest} to {highest}, not {text!r:.80}")
        return int(text)

    return read_count


def _prefix(name: str, text: str) -> str:
    if not 0 < len(text.encode()) <= MAX_PREFIX or not text.isprintable() or set("{} ") & set(text):
        raise ConfigError(
            f"url: {name} is 1 to {MAX_PREFIX} bytes without spaces and braces, not {text!r:.80}"
        )
    return text


def _client_name(name: str, text: str) -> str:
    if not re.fullmatch("[!-~]{1,100}", text):
        raise ConfigError(f"url: {name} is 1 to 100 ASCII characters without spaces, not {text!r:.120}")
    return text


def _file(name: str, text: str) -> str:
    if not Path(text).is_file():
        raise ConfigError(f"url: {name}: there is no file {text!r:.200}")
    return text


def _cert_reqs(name: str, text: str) -> str:
    if text not in ("required", "none"):
        raise ConfigError(f"url: {name} is required or none, not {text!r:.80}")
    return text


def _durability(name: str, text: str) -> str:
    if text not in ("stored", "replicated"):
        raise ConfigError(f"url: {name} is stored or replicated, not {text!r:.80}")
    return text


def _secret(name: str, text: str) -> str:
    return text


#: Option → how its text is read. Celery's and redis-py's names, where they have one.
OPTIONS: dict[str, Callable[[str, str], Any]] = {
    "prefix": _prefix,  # begins every key, so that several applications can share a database
    "db": _count(0, 99_999),  # for a Unix socket, whose URL has no place for it
    "socket_timeout": _timeout,  # how long an answer may take
    "socket_connect_timeout": _timeout,  # how long connecting may take, signing in included
    "socket_keepalive": _yes,
    "health_check_interval": _seconds,  # a connection that rested for longer is tried first; 0: never
    "retry_on_timeout": _yes,  # connect once more; what may have been sent is never repeated
    "max_connections": _count(1, 10_000),  # for calls; those who wait for messages have their own
    "client_name": _client_name,
    "durability": _durability,  # replicated: a put returns when a replica has it too
    "replication_timeout": _timeout,  # how long that may take; then the put is Uncertain
    "sentinel_username": _secret,
    "sentinel_password": _secret,
    "ssl": _yes,  # the same as rediss://
    "ssl_ca_certs": _file,
    "ssl_certfile": _file,
    "ssl_keyfile": _file,
    "ssl_check_hostname": _yes,
    "ssl_cert_reqs": _cert_reqs,
}


def _options(query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in OPTIONS:
            raise ConfigError(f"url: {_unknown(name)}")
        if name in options:
            raise ConfigError(f"url: {name} is given twice")
        options[name] = OPTIONS[name](name, text)
    return options


def _unknown(name: str) -> str:
    hint = did_you_mean(name, OPTIONS, f"there are {', '.join(OPTIONS)}")
    return f"redis:// has no option {name!r:.80}; {hint}"


def _check_sentinel_options(mode: Mode, values: dict[str, Any]) -> None:
    if mode != "sentinel" and (found := [name for name in values if name.startswith("sentinel_")]):
        raise ConfigError(f"url: {found[0]} goes with redis+sentinel:// only")


def _tls(by_scheme: bool, options: dict[str, Any]) -> Tls | None:
    named = {name.removeprefix("ssl_"): value for name, value in options.items() if name.startswith("ssl_")}
    if options.get("ssl", by_scheme) != by_scheme and by_scheme:
        raise ConfigError("url: ssl=no contradicts the scheme; use redis:// for a connection without TLS")
    if not (by_scheme or options.get("ssl")):
        if named:
            raise ConfigError(f"url: ssl_{next(iter(named))} goes with rediss:// only")
        return None
    return Tls(**named)
