"""What a server must be like, asked once when it is opened."""

from __future__ import annotations

import logging
import socket
import ssl
from typing import TYPE_CHECKING, NamedTuple

from postroom.errors import ConfigError, EngineUnavailable
from postroom.stats import Memory

if TYPE_CHECKING:
    from postroom.engines.redis.client import Client
    from postroom.engines.redis.urls import Node

_log = logging.getLogger("postroom.redis")

OLDEST = (7, 0)


class Server(NamedTuple):
    """What a server says of itself. Valkey tells the Redis version that it is compatible with."""

    version: str
    policy: str
    cluster: bool
    role: str


def check(client: Client) -> Server:
    """What the server is, if it will do; else ConfigError or EngineUnavailable, saying why."""
    try:
        answers = client.ask_all("INFO")
    except EngineUnavailable:
        _check_protocol(client)
        raise
    servers = [_server(answer) for answer in answers]
    for server in servers:
        _check_version(client.where, server.version)
        _check_mode(client, server)
        _check_policy(client.where, server.policy)
    if any(server.policy.startswith("volatile-") for server in servers):
        _log.warning(
            "%s: maxmemory-policy %s may remove keys that have a time to live; noeviction is the safe one",
            client.where,
            servers[0].policy,
            extra={"event": "redis.eviction", "policy": servers[0].policy},
        )
    return servers[0]


def fullest(answers: list[bytes]) -> Memory:
    """The memory of the fullest server, by their answers to INFO."""
    return max(map(_memory, answers), key=_fullness)


def _memory(answer: bytes) -> Memory:
    info = _info(answer)
    return Memory(int(info["used_memory"]), int(info["maxmemory"]) or None)  # 0 stands there for no limit


def _fullness(memory: Memory) -> tuple[float, int]:
    return memory.used / memory.maxmemory if memory.maxmemory else 0.0, memory.used


def _info(answer: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in answer.decode("utf-8", "replace").splitlines())
    return {name: value for name, _, value in lines}


def _server(answer: bytes) -> Server:
    info = _info(answer)
    return Server(
        version=info.get("redis_version", ""),
        policy=info.get("maxmemory_policy", ""),
        cluster=info.get("cluster_enabled") == "1",
        role=info.get("role", ""),
    )


def _check_version(where: str, version: str) -> None:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers and numbers < OLDEST:
        raise ConfigError(f"{where}: this is Redis {version}; Postroom needs 7.0 or newer, or Valkey")


def _check_mode(client: Client, server: Server) -> None:
    where, mode = client.where, client.settings.mode
    if server.cluster and mode != "cluster":
        raise ConfigError(f"{where}: this server is part of a cluster: use redis+cluster://")
    if server.role == "slave" and mode != "cluster":
        raise EngineUnavailable(f"{where}: this is a replica, which takes no writes: name its primary")


def _check_policy(where: str, policy: str) -> None:
    if policy.startswith("allkeys-"):
        raise ConfigError(
            f"{where}: maxmemory-policy {policy} removes messages when memory runs short, and nobody would"
            " know; run CONFIG SET maxmemory-policy noeviction (and write it to the server's configuration)"
        )


# --- TLS or not ---------------------------------------------------------------------------------
# A server tells a client of the wrong kind nothing: it hangs up, or waits for more.


def _check_protocol(client: Client) -> None:
    """Raises ConfigError when somebody is there who speaks TLS and we do not, or the reverse."""
    settings = client.settings
    if not settings.nodes:
        return
    node, timeout = settings.nodes[0], settings.socket_connect_timeout
    try:
        if settings.tls is None and _speaks_tls(node, timeout):
            raise ConfigError(f"{client.where}: this port speaks TLS: use rediss://")
        if settings.tls is not None and _speaks_plainly(node, timeout):
            raise ConfigError(f"{client.where}: this port does not speak TLS: use redis://")
    except OSError:
        return  # nobody is there


def _speaks_tls(node: Node, timeout: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is said to it; only whether it answers in TLS counts
    with socket.create_connection(node, timeout) as plain:
        try:
            context.wrap_socket(plain).close()
        except ssl.SSLError as error:
            return "ALERT" in (error.reason or "")
    return True


def _speaks_plainly(node: Node, timeout: float) -> bool:
    with socket.create_connection(node, timeout) as plain:
        plain.settimeout(timeout)
        plain.sendall(b"PING\r\n")
        return plain.recv(1) in (b"+", b"-")
