"""`postroom config`: what is configured, and where each value comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli import output

if TYPE_CHECKING:
    from postroom.config import Config, Layer, Setting

app: typer.Typer = typer.Typer(no_args_is_help=True)

File = Annotated[
    str | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The file to read; else the one POSTROOM_CONFIG names, else ./postroom.toml, "
        "else [tool.postroom] in ./pyproject.toml.",
    ),
]
Queue = Annotated[
    str | None,
    typer.Option("--queue", "-q", metavar="NAME", help="Only what holds for this queue, declared or not."),
]
Role = Annotated[
    str | None,
    typer.Option("--role", "-r", metavar="NAME", help="Only what a worker of this role gets."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Count warnings as errors.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table; null is off.")]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="config", help="Show and check the configuration.")


@app.command()
def show(config: File = None, queue: Queue = None, role: Role = None, json: Json = False) -> None:
    """Show every setting, its value and where the value comes from.

    \b
    Examples:
      postroom config show --queue heavy_payouts
      postroom config show --role fast
      POSTROOM_LEASE=1m postroom config show --json | jq .settings.lease

    \b
    Layers, the later one wins:
      default        what Postroom promises out of the box
      postroom.toml  lease = "1m"
      POSTROOM_*     POSTROOM_LEASE=1m
      argument       what a program passes itself
    A table [queues.NAME] is about one queue and beats all of them there; one
    [roles.NAME] about a kind of worker, one [schedule.NAME] what to put when.

    \b
    Settings of the room, at the top of the file only:
      url app sweep_interval sweep_batch max_body keeper_ttl poll_timeout
      durability replication_timeout
      spool health_check_timeout spool_capacity spool_bytes telemetry tracing
    In the tables [idempotency] and [http], without that word:
      idempotency_every_task idempotency_ttl
      http_host http_port http_tls_cert http_tls_key http_auth http_read_only
      http_allow_hosts http_rate http_redact http_redact_patterns http_services
      http_environment http_environment_colour http_trace_link
    Settings of a queue, at the top for all queues or in a table for one:
      lease ack_timeout max_attempts backoff backoff_cap jitter labels aging
      capacity warn_depth rate put_rate max_in_flight on_expire sla_p95
      dead_letter dead_retention dead_limit on_dead dedupe_window keep_done
      suspect_after
    In a queue's table only, for each worker: concurrency prefetch
    In a role's table: queues concurrency prefetch order weights stop_timeout
    Also understood: visibility_timeout (ack_timeout, and a lease of a third of
      it, at most 30s), retries (max_attempts - 1).
    """
    from postroom.config import load
    from postroom.limits import check_name

    loaded = load(config)
    if role is not None:
        loaded.role(role)
    if queue is not None:
        check_name(queue)
    if json:
        output.as_json(_document(loaded, queue, role))
    else:
        output.table(("setting", "value", "origin"), _rows(loaded, queue, role))


@app.command()
def check(config: File = None, strict: Strict = False, json: Json = False) -> None:
    """Load the configuration, look for contradictions, and print "ok" or what is wrong.

    What cannot be read is one line and exit code 1. What can be read but contradicts itself is a
    line each, with its place and what to do; an error gives exit code 1, warnings alone 0.

    \b
    Examples:
      postroom config check
      postroom config check --config deploy/postroom.toml --strict
      postroom config check --json | jq '.findings[].hint'

    \b
    What it looks for: a role that names no queue of the file, a queue in no role,
    a lease longer than the ack_timeout, a queue in which tasks would have more
    time than handlers, retries that only meet backoff_cap,
    a concurrency or prefetch that can never be reached, an SLA nobody measures,
    dead letters named like a queue or kept without bound, workers on memory://,
    a certificate or a schema that is not there.
    """
    from postroom.config import load
    from postroom.matrix import findings
    from postroom.room import read_url

    loaded = load(config)
    read_url(loaded.url)
    found = findings(loaded)
    wrong = [finding for finding in found if strict or finding.severity == "error"]
    counts = f"queues: {len(loaded.declared)}, roles: {len(loaded.roles)}, schedules: {len(loaded.schedules)}"
    output.say(f"read {f'{loaded.file} ({counts})' if loaded.file else 'no file'} and the environment")
    if json:
        output.as_json({"ok": not wrong, "findings": [finding._asdict() for finding in found]})
    else:
        for finding in found:
            place = f"{loaded.file}:{finding.line}" if finding.line else loaded.file
            print(f"{place}: {finding}")
        print("not ok" if wrong else "ok")
    if wrong:
        raise typer.Exit(1)


def _settings(config: Config, queue: str | None) -> Layer:
    """Every setting asked for, and the heartbeat that follows from the lease."""
    from postroom.config import Setting
    from postroom.duration import format_duration

    if queue is None:
        settings, policy = config.settings, config.default
    else:
        settings, policy = config.settings_of(queue), config.policy(queue)
    shown: dict[str, Setting] = {}
    for name, setting in settings.items():
        shown[name] = setting
        if name == "lease":
            shown["heartbeat"] = Setting(format_duration(policy.lease // 3), "derived: lease / 3")
    return shown


def _rows(config: Config, queue: str | None, role: str | None) -> list[tuple[str, str, str]]:
    if role is not None:
        return _role_rows(config, role)
    rows = [_row(name, setting) for name, setting in _settings(config, queue).items()]
    if queue is None:
        for name, table in config.tables.items():
            rows += _table_rows(f"queues.{name}", table)
        for name, table in config.role_tables.items():
            rows += _table_rows(f"roles.{name}", table)
        for name, table in _schedules(config).items():
            rows += _table_rows(f"schedule.{name}", table)
        for name, table in _kinds(config).items():
            rows += _table_rows(f"kinds.{name}", table)
    return rows


def _kinds(config: Config) -> dict[str, Layer]:
    """What is said of kinds; it comes from the file, and its schemas lie beside that."""
    from postroom.config import Setting

    found = {name: (file, config.source.heading("kinds", name)) for name, file in config.schemas.items()}
    return {
        name: {"schema": Setting(file, f"{config.file} {where}")} for name, (file, where) in found.items()
    }


def _schedules(config: Config) -> dict[str, Layer]:
    """What the tables of schedules give; they come from the file and from nowhere else."""
    from postroom.config import Setting

    return {
        name: {key: Setting(value, f"{config.file} [schedule.{name}]") for key, value in given.items()}
        for name, given in ((name, schedule.given()) for name, schedule in config.schedules.items())
    }


def _role_rows(config: Config, role: str) -> list[tuple[str, str, str]]:
    """What a worker of this role gets: its own settings, and those of its queues."""
    rows = _table_rows(f"roles.{role}", config.role_tables[role])
    for queue in config.role(role).queues:
        rows += _table_rows(f"queues.{queue}", config.settings_of(queue))
    return rows


def _table_rows(prefix: str, table: Layer) -> list[tuple[str, str, str]]:
    return [_row(f"{prefix}.{key}", setting) for key, setting in table.items()]


def _row(name: str, setting: Setting) -> tuple[str, str, str]:
    return name, _text(setting.value), setting.origin


def _text(value: Any) -> str:
    from postroom.settings import OFF, without_secrets

    if value is None:
        return OFF
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(f"{key} = {number}" for key, number in value.items()) or OFF
    if isinstance(value, list):
        return ", ".join(value) or OFF
    return str(without_secrets(value))


def _document(config: Config, queue: str | None, role: str | None) -> dict[str, Any]:
    document: dict[str, Any] = {"file": config.file}
    if role is not None:
        queues = config.role(role).queues
        document |= {"role": role, "settings": _plain(config.role_tables[role])}
        return document | {"queues": {name: _plain(config.settings_of(name)) for name in queues}}
    document["settings"] = _plain(_settings(config, queue))
    if queue is not None:
        return document | {"queue": queue}
    document["queues"] = {name: _plain(table) for name, table in config.tables.items()}
    document["roles"] = {name: _plain(table) for name, table in config.role_tables.items()}
    document["schedule"] = {name: _plain(table) for name, table in _schedules(config).items()}
    document["kinds"] = {name: _plain(table) for name, table in _kinds(config).items()}
    return document


def _plain(layer: Layer) -> dict[str, Any]:
    from postroom.settings import without_secrets

    return {
        name: {"value": without_secrets(setting.value), "origin": setting.origin}
        for name, setting in layer.items()
    }
