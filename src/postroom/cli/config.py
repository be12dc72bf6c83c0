"""`postroom config`: what is configured, and where each value comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli import output

if TYPE_CHECKING:
    from postroom.config import Config, Layer, Setting

app = typer.Typer(no_args_is_help=True)

File = Annotated[
    str | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The file to read; else the one POSTROOM_CONFIG names, else ./postroom.toml.",
    ),
]
Queue = Annotated[
    str | None,
    typer.Option("--queue", "-q", metavar="NAME", help="Only what holds for this queue, declared or not."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table; null is off.")]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="config", help="Show and check the configuration.")


@app.command()
def show(config: File = None, queue: Queue = None, json: Json = False) -> None:
    """Show every setting, its value and where the value comes from.

    \b
    Examples:
      postroom config show
      postroom config show --queue heavy_payouts
      POSTROOM_LEASE=1m postroom config show --json | jq .settings.lease

    \b
    Layers, the later one wins:
      default        what Postroom promises out of the box
      postroom.toml  lease = "1m"
      POSTROOM_*     POSTROOM_LEASE=1m
      argument       what a program passes itself
    A table [queues.NAME] is about one queue and beats all of them there.
    A table [schedule.NAME] says what to put when: see postroom schedule --help.

    \b
    Settings of the room, at the top of the file only:
      url sweep_interval sweep_batch max_body keeper_ttl poll_timeout
      durability replication_timeout
      spool health_check_timeout spool_capacity spool_bytes telemetry tracing
    In a table [idempotency], without that word:
      idempotency_every_task idempotency_ttl
    Settings of a queue, at the top for all queues or in a table for one:
      lease ack_timeout max_attempts backoff backoff_cap jitter labels aging
      capacity warn_depth rate put_rate max_in_flight on_expire sla_p95
      dead_letter dead_retention dead_limit dedupe_window keep_done suspect_after
    Also understood: visibility_timeout (lease), retries (max_attempts - 1).
    """
    from postroom.config import load
    from postroom.limits import check_name

    loaded = load(config)
    if queue is not None:
        check_name(queue)
    if json:
        output.as_json(_document(loaded, queue))
    else:
        output.table(("setting", "value", "origin"), _rows(loaded, queue))


@app.command()
def check(config: File = None) -> None:
    """Load the configuration and print "ok", or say what is wrong and exit with 1.

    \b
    Examples:
      postroom config check
      postroom config check --config deploy/postroom.toml
    """
    from postroom.config import load
    from postroom.room import read_url

    loaded = load(config)
    read_url(loaded.url)
    counts = f"queues: {len(loaded.declared)}, schedules: {len(loaded.schedules)}"
    file = f"{loaded.file} ({counts})" if loaded.file else "no file"
    output.say(f"read {file} and the environment")
    print("ok")


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


def _rows(config: Config, queue: str | None) -> list[tuple[str, str, str]]:
    rows = [_row(name, setting) for name, setting in _settings(config, queue).items()]
    for name, table in config.tables.items() if queue is None else ():
        rows += [_row(f"queues.{name}.{key}", setting) for key, setting in table.items()]
    for name, table in _schedules(config).items() if queue is None else ():
        rows += [_row(f"schedule.{name}.{key}", setting) for key, setting in table.items()]
    return rows


def _schedules(config: Config) -> dict[str, Layer]:
    """What the tables of schedules give; they come from the file and from nowhere else."""
    from postroom.config import Setting

    return {
        name: {key: Setting(value, f"{config.file} [schedule.{name}]") for key, value in given.items()}
        for name, given in ((name, schedule.given()) for name, schedule in config.schedules.items())
    }


def _row(name: str, setting: Setting) -> tuple[str, str, str]:
    return name, _text(setting.value), setting.origin


def _text(value: Any) -> str:
    from postroom.settings import OFF, without_secrets

    if value is None:
        return OFF
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(f"{key} = {number}" for key, number in value.items())
    return str(without_secrets(value))


def _document(config: Config, queue: str | None) -> dict[str, Any]:
    document = {"file": config.file, "settings": _plain(_settings(config, queue))}
    if queue is None:
        document["queues"] = {name: _plain(table) for name, table in config.tables.items()}
        document["schedule"] = {name: _plain(table) for name, table in _schedules(config).items()}
    else:
        document["queue"] = queue
    return document


def _plain(layer: Layer) -> dict[str, Any]:
    from postroom.settings import without_secrets

    return {
        name: {"value": without_secrets(setting.value), "origin": setting.origin}
        for name, setting in layer.items()
    }
