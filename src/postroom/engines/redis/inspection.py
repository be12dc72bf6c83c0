"""What an operator should know of a Redis server: persistence, memory, who may reach it, its clock."""

from __future__ import annotations

import time

from postroom.addresses import is_loopback
from postroom.engines.redis.client import Client
from postroom.errors import PostroomError
from postroom.findings import Finding, bad, fine, worth_a_change

#: Memory in use beyond this part of the limit is worth a change.
_FULL = 0.8
#: A clock that differs by more than this (seconds) is worth a change.
_SKEW = 1.0
#: A copy beside the append-only file may be so old (seconds), and how it is made so often.
_COPY = 900
_SAVE = f"set save {_COPY} 1 in redis.conf"
#: Keys of Celery's own Redis transport; and at most so many looks for more of them.
_KOMBU = ("unacked", "unacked_index", "unacked_mutex", "celery", "_kombu.binding.celery")
_LOOKS = 10

Info = dict[str, str]


def inspect(client: Client) -> list[Finding]:
    """Of a cluster each primary is looked at, and the worst of each check is told."""
    began = time.perf_counter()
    infos = [_info(answer) for answer in client.ask_all("INFO")]
    took = (time.perf_counter() - began) * 1_000
    found = [fine("connection", f"{client.where} answers in {took:.1f} ms")]
    for check in (_version, _eviction, _memory, _append_only):
        found.append(_worst([check(info) for info in infos]))
    return [*found, *_configured(client), *reach(client), _clock(client), _kombu(client)]


def _worst(findings: list[Finding]) -> Finding:
    return max(findings, key=lambda finding: ("ok", "warn", "fail").index(finding.level))


def _info(answer: bytes) -> Info:
    lines = (line.partition(":") for line in answer.decode("utf-8", "replace").splitlines())
    return {name: value for name, _, value in lines}


def _version(info: Info) -> Finding:
    valkey = f", Valkey {info['valkey_version']}" if "valkey_version" in info else ""
    return fine("version", f"Redis {info.get('redis_version', 'of an unknown version')}{valkey}")


def _eviction(info: Info) -> Finding:
    policy = info.get("maxmemory_policy", "unknown")
    if policy == "noeviction":
        return fine("eviction", "maxmemory-policy noeviction")
    text = f"maxmemory-policy {policy} may remove keys"
    return worth_a_change("eviction", text, "CONFIG SET maxmemory-policy noeviction, and in redis.conf")


def _memory(info: Info) -> Finding:
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    text = f"{_size(used)} in use, limit {_size(limit) if limit else 'none'}"
    if limit and used > _FULL * limit:
        return worth_a_change("memory", text, "raise maxmemory: a full Redis refuses puts, and only drains")
    if not limit:
        advice = "set maxmemory below what the machine has, or the kernel ends Redis when it is full"
        return worth_a_change("memory", text, advice)
    return fine("memory", text)


def _append_only(info: Info) -> Finding:
    if info.get("aof_enabled") != "1":
        text = "appendonly is off: a crash of Redis loses what came since its last snapshot"
        return bad("append-only file", text, "set appendonly yes; see examples/marketplace/redis.conf")
    if info.get("aof_last_write_status", "ok") != "ok":
        return bad("append-only file", "the last write to it failed", "look for a full or broken disk")
    return fine("append-only file", "appendonly yes")


# --- what only the configuration tells ----------------------------------------------------------


def _configured(client: Client) -> list[Finding]:
    try:
        answers = client.ask_all("CONFIG", "GET", "appendfsync", "save")
    except PostroomError:
        text = "cannot be asked of this server by this user"
        return [worth_a_change("fsync, snapshots", text, "check appendfsync and save in redis.conf")]
    configs = [_settings(answer) for answer in answers]
    fsync = [_fsync(config.get("appendfsync", "")) for config in configs]
    return [_worst(fsync), _worst([_snapshots(config.get("save", "")) for config in configs])]


def _settings(answer: list[bytes]) -> Info:
    words = [word.decode() for word in answer]
    return dict(zip(words[::2], words[1::2], strict=True))


def _fsync(value: str) -> Finding:
    if value in ("everysec", "always"):
        return fine("fsync", f"appendfsync {value}")
    text = f"appendfsync {value}: a power cut loses as much as the kernel likes"
    return worth_a_change("fsync", text, "CONFIG SET appendfsync everysec, and in redis.conf")


def _snapshots(value: str) -> Finding:
    """A rule is seconds and changes: whatever needs more than one change says nothing of a quiet hour."""
    if not value:
        return worth_a_change("snapshots", "save is off: there is no second copy", _SAVE)
    rules = [int(word) for word in value.split()]
    spans = [seconds for seconds, changes in zip(rules[::2], rules[1::2], strict=True) if changes <= 1]
    if not spans or min(spans) > _COPY:
        text = f"save {value}: the second copy may be older than {_COPY // 60} minutes"
        return worth_a_change("snapshots", text, _SAVE)
    return fine("snapshots", f"save {value}")


# --- who can reach it ---------------------------------------------------------------------------


def reach(client: Client) -> list[Finding]:
    """Who can reach the server, and read what is said to it: by its URL, without asking it."""
    return [_auth(client), _tls(client)]


def _is_local(client: Client) -> bool:
    return all(map(is_loopback, (node.host for node in client.settings.nodes)))


def _auth(client: Client) -> Finding:
    if client.settings.password is not None:
        return fine("authentication", f"as {client.settings.username or 'the default user'}")
    if _is_local(client):
        return fine("authentication", "none, and on this machine only")
    text = "none: whoever reaches the server can read and delete everything"
    return worth_a_change("authentication", text, "give the server a user and the URL user:password@")


def _tls(client: Client) -> Finding:
    if client.settings.tls is not None:
        return fine("TLS", "on")
    if _is_local(client):
        return fine("TLS", "off, and on this machine only")
    return worth_a_change("TLS", "off: bodies cross the network readable", "use rediss:// and a certificate")


# --- clock, and what was here before ------------------------------------------------------------


def server_time(client: Client) -> float:
    """Epoch seconds by the server's clock."""
    seconds, micros = client.command("TIME")
    return int(seconds) + int(micros) / 1_000_000


def _clock(client: Client) -> Finding:
    before = time.time()
    there = server_time(client)
    after = time.time()
    skew = there - (before + after) / 2
    text = f"the server's is {abs(skew):.3f} s {'ahead of' if skew >= 0 else 'behind'} this machine's"
    if abs(skew) <= _SKEW + (after - before) / 2:  # when it was told, an answer that took long does not say
        return fine("clock", text)
    return worth_a_change("clock", text, "run NTP on both; what is due goes by the server's clock")


def _kombu(client: Client) -> Finding:
    try:
        found = _kombu_keys(client)
    except PostroomError:
        return fine("old Celery keys", "this user may not look for them")
    if not found:
        return fine("old Celery keys", "none in this database")
    text = f"keys of Celery's own Redis transport: {', '.join(found[:5])}"
    advice = (
        "their tasks are not seen here: run `postroom celery migrate --from redis://…`, "
        "or drain them with the old broker_url"
    )
    return worth_a_change("old Celery keys", text, advice)


def _kombu_keys(client: Client) -> list[str]:
    """Some of the keys that kombu leaves; bounded, so a large database may hold more than is seen."""
    found = [key for key in _KOMBU if client.command("EXISTS", key, key=key.encode())]
    cursor: bytes = b"0"
    for _ in range(_LOOKS if client.settings.mode != "cluster" else 0):
        cursor, keys = client.command("SCAN", cursor, "MATCH", "_kombu.binding.*", "COUNT", 1_000)
        found += [key.decode("utf-8", "replace") for key in keys]
        if cursor == b"0":
            break
    return list(dict.fromkeys(found))


def _size(count: int) -> str:
    return f"{count / 2**20:,.0f} MB" if count < 2**30 else f"{count / 2**30:,.1f} GB"
