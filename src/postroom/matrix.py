"""What contradicts itself in a configuration that is valid, setting by setting.

A finding is an error when something can never work as written, and a warning when it works but
hardly as meant. Each names its table, its key and its line, and says what to do.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from postroom.config import Config, Http
from postroom.duration import format_duration
from postroom.errors import did_you_mean
from postroom.policy import Policy
from postroom.role import Role, Share

Severity = Literal["error", "warning"]


class Finding(NamedTuple):
    """One contradiction: where it stands, what it is, and what to do about it."""

    severity: Severity
    table: str
    key: str
    text: str
    hint: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.severity}: {f'{self.table} {self.key}'.strip()}: {self.text} ({self.hint})"


#: The same before anybody knows in which table: severity, key, text, hint.
Found = tuple[Severity, str, str, str]


def findings(config: Config) -> list[Finding]:
    """Everything that contradicts itself, errors first, in the order of the file."""
    parts = (_of_queues, _of_roles, _of_schedules, _of_kinds, _of_room, _of_server)
    found = [finding for part in parts for finding in part(config)]
    return sorted(found, key=lambda finding: (finding.severity, finding.line or 0))


# ---- One queue by itself --------------------------------------------------------------------------


def _of_queues(config: Config) -> Iterator[Finding]:
    for queue, policy in config.declared.items():
        share = config.share(queue)
        for check in (_time_to_work, _retries, _limits, _keeping):
            for found in check(policy, share):
                yield _finding(config, "queues", queue, *found)
        for found in (*_dead_letter_name(config, queue, policy), *_whose_time(config, queue)):
            yield _finding(config, "queues", queue, *found)


def _time_to_work(policy: Policy, share: Share) -> Iterator[Found]:
    if policy.ack_timeout is not None and policy.lease > policy.ack_timeout:
        lease, allowed = format_duration(policy.lease), format_duration(policy.ack_timeout)
        yield (
            "warning", "lease",
            f"is {lease}, but the work is taken back after its ack_timeout, {allowed}",
            f'say visibility_timeout = "{lease}" if the work may take so long, or ack_timeout = "off"',
        )  # fmt: skip


def _retries(policy: Policy, share: Share) -> Iterator[Found]:
    retries, backoff = policy.max_attempts - 1, policy.backoff
    longest = backoff.unit * backoff.factor ** max(0, min(retries - 1, 64))
    if retries and longest > backoff.cap:
        yield (
            "warning", "backoff_cap",
            f"cuts the waits of {backoff} to {format_duration(backoff.cap)}; before retry {retries} it "
            f"would be {format_duration(round(longest))}",
            "raise backoff_cap, or retry less often",
        )  # fmt: skip


def _limits(policy: Policy, share: Share) -> Iterator[Found]:
    most = policy.max_in_flight
    if most is not None and share.concurrency is not None and share.concurrency > most:
        yield (
            "warning", "concurrency",
            f"is {share.concurrency}, but at most {most} may be in flight in all workers together",
            "lower it, or raise max_in_flight",
        )  # fmt: skip
    if policy.capacity and policy.warn_depth and policy.warn_depth >= policy.capacity:
        yield (
            "warning", "warn_depth",
            f"is {policy.warn_depth}, but the queue refuses messages from {policy.capacity} on",
            "warn below the capacity",
        )  # fmt: skip


def _keeping(policy: Policy, share: Share) -> Iterator[Found]:
    if policy.dead_limit is None and policy.dead_retention is None:
        yield (
            "warning", "dead_limit",
            "is off and so is dead_retention: dead letters are kept without any bound",
            'give one of them, such as dead_retention = "30d"',
        )  # fmt: skip


def _dead_letter_name(config: Config, queue: str, policy: Policy) -> Iterator[Found]:
    if policy.dead_letter in config.declared:
        yield (
            "error", "dead_letter",
            f"{policy.dead_letter!r} is also the name of a queue; nobody could tell which of them is meant",
            "give the dead letters a name of their own, such as dlq_fast",
        )  # fmt: skip


def _whose_time(config: Config, queue: str) -> Iterator[Found]:
    """One queue has one ack_timeout; the one that nobody gives is another for tasks than for handlers."""
    settings = config.settings_of(queue)
    if config.routes and not settings["tasks"].value and settings["ack_timeout"].origin == "default":
        allowed = format_duration(config.policy(queue).ack_timeout or 0)
        yield (
            "warning", "visibility_timeout",
            f"is not given, nor are tasks: handlers would have {allowed} and tasks as long as they like, and "
            "the queue promises what the last one meant who opened it",
            'say visibility_timeout = "…", or name the tasks that are sent to it',
        )  # fmt: skip


# ---- Roles and their queues -----------------------------------------------------------------------


def _of_roles(config: Config) -> Iterator[Finding]:
    for name, role in config.roles.items():
        for found in (*_unknown_queues(config, role), *_pool(config, role), *_weights(role)):
            yield _finding(config, "roles", name, *found)
        for queue in role.queues:
            for found in _share_of(config.share(queue), role):
                yield _finding(config, "queues", queue, *found)
    if config.roles:
        worked = {queue for role in config.roles.values() for queue in role.queues}
        for queue in config.declared.keys() - worked:
            yield from (_finding(config, "queues", queue, *found) for found in _orphan(config, queue))


def _unknown_queues(config: Config, role: Role) -> Iterator[Found]:
    for queue in role.queues:
        if queue not in config.declared:
            yield "error", "queues", f"{queue!r} is no queue of this file", _meant(config, queue)


def _meant(config: Config, queue: str) -> str:
    return did_you_mean(queue, config.declared, f"add a table [queues.{queue}]")


def _pool(config: Config, role: Role) -> Iterator[Found]:
    limits = [config.share(queue).concurrency for queue in role.queues]
    usable = sum(limit or role.concurrency for limit in limits)
    if usable < role.concurrency:
        yield (
            "warning", "concurrency",
            f"is {role.concurrency}, but its queues use at most {usable} together",
            f"{usable} is enough, or raise the concurrency of a queue",
        )  # fmt: skip


def _weights(role: Role) -> Iterator[Found]:
    if role.weights and role.order != "weighted":
        yield "warning", "weights", f"mean nothing to the order {role.order}", 'say order = "weighted"'
    for queue in role.weights.keys() - set(role.queues):
        yield "error", "weights", f"{queue!r} is no queue of this role", "add it to queues, or take it out"


def _share_of(share: Share, role: Role) -> Iterator[Found]:
    if share.concurrency is not None and share.concurrency > role.concurrency:
        yield (
            "warning", "concurrency",
            f"is {share.concurrency}, but a worker of role {role.name} has only {role.concurrency} hands",
            "raise the concurrency of the role, or lower this one",
        )  # fmt: skip
    if share.prefetch is not None and role.prefetch is not None and share.prefetch > role.prefetch:
        yield (
            "warning", "prefetch",
            f"is {share.prefetch}, but a worker of role {role.name} holds at most {role.prefetch} in all",
            "raise the prefetch of the role, or lower this one",
        )  # fmt: skip


def _orphan(config: Config, queue: str) -> Iterator[Found]:
    hint = "add it to the queues of a role"
    yield "warning", "", "is in no role: nobody started by role works on it", hint
    if config.declared[queue].sla_p95 is not None:
        yield "warning", "sla_p95", "is promised, but nobody takes its messages and measures the wait", hint


# ---- Schedules ------------------------------------------------------------------------------------


def _of_schedules(config: Config) -> Iterator[Finding]:
    """A slot that nobody works on waits for ever. Without any queues in the file anybody may work on it."""
    for name, schedule in config.schedules.items() if config.declared else ():
        if schedule.queue not in config.declared:
            text = f"{schedule.queue!r} is no queue of this file"
            yield _finding(config, "schedule", name, "error", "queue", text, _meant(config, schedule.queue))


# ---- Kinds ----------------------------------------------------------------------------------------


def _of_kinds(config: Config) -> Iterator[Finding]:
    for name, file in config.schemas.items():
        if _is_missing(file):
            text, hint = f"there is no file {file} here", "no edited payload of this kind could be put"
            yield _finding(config, "kinds", name, "warning", "schema", text, hint)


def _is_missing(file: str) -> bool:
    """Whether there is no such file, as far as this user may look: others may run the server."""
    try:
        return not Path(file).is_file()
    except PermissionError:
        return False
    except OSError:  # no file can be called so
        return True


# ---- The room -------------------------------------------------------------------------------------


def _of_room(config: Config) -> Iterator[Finding]:
    if config.roles and config.url.startswith("memory:"):
        text = "lives in one process; a worker started by role would never see what others put"
        hint = 'take a store that processes share, such as "sqlite:///jobs.db"'
        yield Finding("error", "", "url", text, hint, config.source.line(config.source.table, "url"))
    promised = [queue for queue, policy in config.declared.items() if policy.sla_p95 is not None]
    if promised and not config.telemetry:
        text = f"is off, so that nobody measures the sla_p95 of {', '.join(promised[:3])}"
        hint = "say telemetry = true where the work is done, or promise nothing"
        yield Finding(
            "warning", "", "telemetry", text, hint, config.source.line(config.source.table, "telemetry")
        )


# ---- The server -----------------------------------------------------------------------------------


def _of_server(config: Config) -> Iterator[Finding]:
    table = f"{config.source.table}.http" if config.source.table else "http"
    for severity, key, text, hint in (*_certificate(config.http), *_allowed_hosts(config.http)):
        yield Finding(severity, f"[{table}]", key, text, hint, config.source.line(table, key))


def _certificate(http: Http) -> Iterator[Found]:
    if http.tls_key and not http.tls_cert:
        text = "is the key of a certificate that is not given; it would serve http"
        yield "error", "tls_key", text, "give tls_cert too"
    for key, file in (("tls_cert", http.tls_cert), ("tls_key", http.tls_cert and http.tls_key)):
        if file and _is_missing(file):
            yield "warning", key, f"there is no file {file} here", "the server starts where it is"
    if not http.tls_cert and not _is_loopback(http.host):
        text = f"is {http.host}, without a certificate: tokens and messages can be read on their way"
        yield "warning", "host", text, "give tls_cert, or listen on loopback behind a proxy that has one"


def _allowed_hosts(http: Http) -> Iterator[Found]:
    if "*" in (http.allow_hosts or ()):
        text = "allows every name, and so a page that has its own name point here"
        yield "warning", "allow_hosts", text, "name those under which people come"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def _finding(
    config: Config, kind: str, name: str, severity: Severity, key: str, text: str, hint: str
) -> Finding:
    heading = config.source.heading(kind, name)
    # A key that the table does not give is a default: the table itself is the place to give it.
    return Finding(severity, heading, key, text, hint, config.source.line(heading, key))
