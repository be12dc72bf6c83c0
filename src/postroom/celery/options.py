"""`broker_transport_options`: what they mean here, under the names that users of Redis know."""

from __future__ import annotations

import dataclasses
import logging
import re
import ssl as tls
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from postroom.breaker import Breaker
from postroom.config import Config, load
from postroom.duration import Duration, format_duration, milliseconds
from postroom.errors import InvalidInput, did_you_mean
from postroom.limits import MAX_ATTEMPTS, MAX_TOPIC, TOPIC_LIMIT, check_between
from postroom.policy import Policy
from postroom.rotation import ORDERS

log: logging.Logger = logging.getLogger(__name__)

#: An option here → the option of a redis:// URL.
_IN_URL = {
    "global_keyprefix": "prefix",
    "socket_timeout": "socket_timeout",
    "socket_connect_timeout": "socket_connect_timeout",
    "socket_keepalive": "socket_keepalive",
    "health_check_interval": "health_check_interval",
    "retry_on_timeout": "retry_on_timeout",
    "max_connections": "max_connections",
    "client_name": "client_name",
    "sentinel_username": "sentinel_username",
    "sentinel_password": "sentinel_password",
}
_SPANS = frozenset({"socket_timeout", "socket_connect_timeout", "health_check_interval"})
#: Kombu's own and Celery's publish policy, which Celery writes in here too.
_KOMBUS = frozenset(
    {"max_retries", "interval_start", "interval_step", "interval_max", "retry_errors", "errback",
     "body_encoding", "deadletter_queue", "confirm_publish", "connect_retries_timeout", "on_revive"}
)  # fmt: skip
#: Known to users of kombu's Redis transport; what they did there is done otherwise here, or not needed.
_NOT_NEEDED = frozenset(
    {"sep", "priority_steps", "ack_emulation", "unacked_key", "unacked_index_key", "unacked_mutex_key",
     "unacked_mutex_expire", "unacked_restore_limit", "unacked_restore_interval", "unacked_restore_throttle"}
)  # fmt: skip
#: These would change what is kept, who hears it or how a server is reached, and do not, unless they say what
#: holds here: said aloud.
_WITHOUT_EFFECT = {
    "fanout_prefix": "each database has broadcasts of its own; only a text sets them further apart",
    "socket_keepalive_options": "a server that is silent is noticed by socket_timeout",
    "sentinel_kwargs": "except username and password; what holds for the servers holds for sentinels",
}
_LOGIN = ("username", "password")

#: Kombu's words for the order of queues, in ours; `sorted` is kombu's alone.
_STRATEGIES = {"round_robin": "round_robin", "sorted": "sorted", "priority": "listed", "listed": "listed"}


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the transport goes by. Spans are milliseconds.

    lease             `visibility_timeout`: a worker that is silent for this long is taken for dead
    delivery_limit    so many attempts, then the message is a dead letter
    message_ttl       a message nobody took for this long expires; None: never
    polling_interval  an idle consumer looks again after this long, although something should have rung
    fanout_patterns   whether a wildcard in a fanout binding filters by routing key
    stream_maxlen     so many broadcasts of an exchange are kept, for a day, for those who have not read them
    fanout_prefix     sets the broadcasts of these connections apart from those with another one
    zero_is_highest   priorities as kombu's Redis transport has them: 0 is the most urgent
    order             in which order the queues of a consumer are asked: as a role says it, or "sorted"
    weights           the shares of queues, for the order "weighted"
    config            the file that configures the room, or a name by `name_config`; None: the usual one
    """

    lease: int = 60_000
    delivery_limit: int = 20
    message_ttl: int | None = None
    polling_interval: int = 10_000
    fanout_patterns: bool = True
    fanout_prefix: str = ""
    stream_maxlen: int = TOPIC_LIMIT
    zero_is_highest: bool = False
    order: str = "round_robin"
    weights: tuple[tuple[str, int], ...] = ()
    config: str | None = None

    def policy(self, config: Config, queue: str) -> Policy:
        """What a task queue promises: as configured where somebody did, else what Celery needs."""
        ours = {"lease": self.lease / 1_000, "ack_timeout": None, "max_attempts": self.delivery_limit}
        given = config.settings_of(queue)
        text = {name: setting.value for name, setting in given.items()}
        text |= {name: value for name, value in ours.items() if given[name].origin == "default"}
        return Policy.from_text(text)


def read(given: Mapping[str, Any]) -> Options:
    """The options; what is unknown is named in a warning, never passed over silently."""
    known = {
        "visibility_timeout", "delivery_limit", "message_ttl", "polling_interval", "fanout_patterns",
        "stream_maxlen", "priority_zero_is_highest", "queue_order_strategy", "order", "weights", "ssl",
        "master_name", "config", *_IN_URL, *_KOMBUS, *_NOT_NEEDED, *_WITHOUT_EFFECT,
    }  # fmt: skip
    for name in sorted(set(given) - known):
        hint = did_you_mean(name, known)
        log.warning(
            "broker_transport_options: Postroom has no option %r%s",
            name,
            hint and f"; {hint}",
            extra={"event": "celery.option_unknown", "option": name},
        )
    for name in _in_vain(given):
        log.warning(
            "broker_transport_options: %r has no effect with Postroom: %s",
            name,
            _WITHOUT_EFFECT[name],
            extra={"event": "celery.option_without_effect", "option": name},
        )
    return Options(
        lease=_span(given, "visibility_timeout", 60_000) or 60_000,
        delivery_limit=_count(given, "delivery_limit", 20, MAX_ATTEMPTS),
        message_ttl=_ttl(given),
        polling_interval=_span(given, "polling_interval", 10_000) or 10_000,
        fanout_patterns=bool(given.get("fanout_patterns", True)),
        fanout_prefix=_fanout_prefix(given),
        stream_maxlen=_count(given, "stream_maxlen", TOPIC_LIMIT, MAX_TOPIC),
        zero_is_highest=bool(given.get("priority_zero_is_highest", False)),
        order=_order(given),
        weights=tuple(sorted((given.get("weights") or {}).items())),
        config=given.get("config"),
    )


def _in_vain(given: Mapping[str, Any]) -> list[str]:
    """What is asked for and not done."""
    asked = {
        "fanout_prefix": not (given.get("fanout_prefix", True)),
        "socket_keepalive_options": bool(given.get("socket_keepalive_options")),
        "sentinel_kwargs": not set(given.get("sentinel_kwargs") or ()).issubset(_LOGIN),
    }
    return [name for name in _WITHOUT_EFFECT if asked[name]]


def _fanout_prefix(given: Mapping[str, Any]) -> str:
    """A text as kombu takes it: its place for the database stays empty, as no two share their broadcasts."""
    prefix = given.get("fanout_prefix", True)
    return prefix.replace("{db}", "") if isinstance(prefix, str) else ""


def _order(given: Mapping[str, Any]) -> str:
    """As Postroom says it, if that is given, else as kombu does."""
    if order := given.get("order"):
        if order not in ORDERS:
            raise InvalidInput(f"order: {order!r} is not one of {', '.join(ORDERS)}")
        return str(order)
    strategy = given.get("queue_order_strategy") or "round_robin"
    if strategy not in _STRATEGIES:
        raise InvalidInput(f"queue_order_strategy: {strategy!r} is not one of {', '.join(_STRATEGIES)}")
    return _STRATEGIES[strategy]


def _span(given: Mapping[str, Any], name: str, default: int) -> int:
    value: Duration | None = given.get(name)
    return default if value is None else milliseconds(value, name)


def _ttl(given: Mapping[str, Any]) -> int | None:
    # -1 is how other transports spell "never".
    value = given.get("message_ttl")
    return None if value in (None, -1, 0) else milliseconds(value, "message_ttl")


def _count(given: Mapping[str, Any], name: str, default: int, most: int) -> int:
    value: int | None = given.get(name)
    if value is None:
        return default
    check_between(name, value, 1, most)
    return value


# --- the configuration --------------------------------------------------------------------------

Breakers = Mapping[str, Breaker]

#: Options travel as text, such as in what a worker tells of itself: configurations go by name.
_named: dict[str, tuple[Config, Breakers]] = {}


def name_config(config: Config, breakers: Breakers | None = None) -> str:
    """A name by which the options of a connection can mean this configuration, in this process.

    And the breakers of its queues, which no file can hold.
    """
    base, meant = config.file or "no file", (config, breakers or {})
    name, number = base, 1
    while _named.setdefault(name, meant) != meant:
        number += 1
        name = f"{base}#{number}"
    return name


def config_of(options: Options, url: str) -> Config:
    """The configuration of the room behind this URL. Raises ConfigError."""
    if options.config in _named:
        return _named[options.config][0]
    return load(options.config, url=url).for_tasks()


def breakers_of(options: Options) -> Breakers:
    """The breakers that queues are tied to, by queue."""
    return _named[options.config][1] if options.config in _named else {}


def is_replicated(config: Config, url: str) -> bool:
    """Whether a put waits for a replica, and may be uncertain."""
    return config.durability == "replicated" or ("durability", "replicated") in parse_qsl(urlsplit(url).query)


# --- the URL ------------------------------------------------------------------------------------


def url_of(client: Any) -> str:
    """The URL of the room behind a kombu connection, with whatever its options say about the store."""
    url = client.hostname or "localhost"
    if "://" not in url:
        url = _from_parts(client)
    url = url.removeprefix("postroom+")
    return _with_options(url, client.transport_options or {}, client.ssl)


def urls_of(client: Any) -> list[str]:
    """The same of every broker that a connection may turn to, in their order."""
    others = client.alt if len(client.alt or ()) > 1 else ()
    given = client.transport_options or {}
    return [_with_options(url.removeprefix("postroom+"), given, client.ssl) for url in others] or [
        url_of(client)
    ]


def _from_parts(client: Any) -> str:
    """The URL of a connection that was made from a host, a port and so on."""
    transport = client.transport_cls
    ours = isinstance(transport, str) and transport.startswith("postroom+")
    scheme = transport.removeprefix("postroom+") if ours else "redis"
    secret = f"{quote(client.userid or '', safe='')}:{quote(client.password or '', safe='')}@"
    port = f":{client.port}" if client.port else ""
    path = (client.virtual_host or "").lstrip("/")
    return f"{scheme}://{secret if len(secret) > 2 else ''}{client.hostname or 'localhost'}{port}/{path}"


def _with_options(url: str, given: dict[str, Any], ssl: Any) -> str:
    parts = urlsplit(url)
    if not parts.scheme.startswith(("redis", "valkey")):
        return url
    if parts.fragment or "@" in parts.query:
        return url  # a part of a password, not of a query: the engine refuses it, and repeats nothing
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    # Kombu's old spelling of a database: redis://host//
    path = "/0" if parts.path in ("", "/", "//") and "+" not in parts.scheme else parts.path
    if "+sentinel" in parts.scheme:
        given = _login_of_sentinels(given) | given
        if master := given.get("master_name"):
            path = _with_master(path, str(master))
    for name, option in _IN_URL.items():
        value = given.get(name)
        if value is not None and value != "":
            query.setdefault(option, _text(name, value))
    scheme = parts.scheme
    if ssl := ssl or given.get("ssl"):
        scheme = re.sub("^(redis|valkey)s?", r"\1s", scheme)
        query |= _tls(ssl)
    if "+socket" in scheme and (db := query.pop("virtual_host", None)):
        query.setdefault("db", db)  # kombu's name for it, where a path cannot say it
    # By hand: without a host, as before the path of a socket, urlunsplit leaves out the slashes.
    return f"{scheme}://{parts.netloc}{path}" + (f"?{urlencode(query)}" if query else "")


def _login_of_sentinels(given: Mapping[str, Any]) -> dict[str, Any]:
    """Kombu's users say it among the arguments of a client."""
    arguments = given.get("sentinel_kwargs") or {}
    return {f"sentinel_{name}": arguments[name] for name in _LOGIN if name in arguments}


def _with_master(path: str, master: str) -> str:
    """The path of a Sentinel URL: name and database. Kombu's users say the name in an option."""
    name, _, db = path.strip("/").partition("/")
    if name and not name.isdigit():
        return path
    return f"/{quote(master, safe='')}/{db or name or '0'}"


def _text(name: str, value: Any) -> str:
    if name in _SPANS:
        return format_duration(milliseconds(value, name)) if value else "0"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _tls(ssl: Any) -> dict[str, str]:
    """`broker_use_ssl`: True, or a dict with the names of redis-py, with or without ssl_ in front."""
    if not isinstance(ssl, Mapping):
        return {}
    query: dict[str, str] = {}
    for given, value in ssl.items():
        name = given if given.startswith("ssl_") else f"ssl_{given}"
        if name == "ssl_cert_reqs" and value in (tls.CERT_NONE, "none", "CERT_NONE"):
            query |= {name: "none", "ssl_check_hostname": "no"}
        elif name == "ssl_cert_reqs":
            query[name] = "required"
        elif value is not None:
            query[name] = _text(name, value)
    return query
