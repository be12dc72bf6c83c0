"""A connection to one server, as the settings want it."""

from __future__ import annotations

import os
from inspect import signature
from typing import Any

from redis import connection as kinds
from redis.backoff import NoBackoff
from redis.retry import Retry

from postroom.engines.redis.pool import Connection
from postroom.engines.redis.urls import Node, Settings, Tls

#: The name and version of the client library are not told: two round trips, and a permission more.
_UNTOLD: dict[str, None] = (
    {"driver_info": None}
    if "driver_info" in signature(kinds.AbstractConnection.__init__).parameters
    else {"lib_name": None, "lib_version": None}
)


def connection(settings: Settings, node: Node | None, **changed: Any) -> Connection:
    """A connection that is not open yet. Signing in has to be done within the connect timeout too."""
    options: dict[str, Any] = {
        "db": settings.db,
        "username": settings.username,
        "password": settings.password,
        "socket_timeout": settings.socket_connect_timeout,
        "socket_connect_timeout": settings.socket_connect_timeout,
        "client_name": settings.client_name or f"postroom:{os.uname().nodename}:{os.getpid()}",
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        **_UNTOLD,
        **changed,
    }
    kind: Any = kinds.Connection
    if node is None:
        kind, options["path"] = kinds.UnixDomainSocketConnection, settings.path
    else:
        options |= {"host": node.host, "port": node.port, "socket_keepalive": settings.socket_keepalive}
    if settings.tls is not None:
        kind, options = kinds.SSLConnection, options | _tls_options(settings.tls)
    made: Connection = kind(**options)
    return made


def _tls_options(tls: Tls) -> dict[str, Any]:
    return {
        "ssl_ca_certs": tls.ca_certs,
        "ssl_certfile": tls.certfile,
        "ssl_keyfile": tls.keyfile,
        "ssl_check_hostname": tls.check_hostname,
        "ssl_cert_reqs": tls.cert_reqs,
    }
