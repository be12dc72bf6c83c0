"""Where every setting comes from: defaults < postroom.toml < POSTROOM_* variables < arguments.

A setting given at the top of the file, in the environment or as an argument is meant for all
queues; a table `[queues.NAME]` is about one queue and therefore beats all of them. A table
`[roles.NAME]` says what one kind of worker does. Together they are the queue matrix. Every value
knows its origin, unknown names are errors with a suggestion, and nothing wrong is passed over:
`load` either gives a complete, valid configuration or raises ConfigError in one line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from postroom import settings as known
from postroom import source as sources
from postroom import timetable
from postroom.duration import milliseconds
from postroom.errors import ConfigError, InvalidInput
from postroom.limits import MAX_BATCH, check_name
from postroom.policy import Policy
from postroom.role import WHOLE, Role, Share
from postroom.settings import Level
from postroom.source import Source
from postroom.timetable import Schedule

PREFIX = "POSTROOM_"
#: What Kubernetes and Docker put into every container beside a service that is called "postroom".
_SERVICE_LINK = re.compile(r"POSTROOM_(SERVICE_|PORT$|PORT_)")


@dataclass(frozen=True, slots=True)
class Setting:
    """A value as people write it ("30s", 3; None is off) and where it was given."""

    value: Any
    origin: str


Layer = Mapping[str, Setting]


class Http(NamedTuple):
    """The table `[http]`: where the server listens, whom it lets in, what it hides."""

    host: str
    port: int | None
    tls_cert: str | None
    tls_key: str | None
    auth: str
    read_only: bool
    allow_hosts: list[str] | None
    rate: str | None
    redact: list[str] | None
    redact_patterns: list[str] | None
    services: list[str] | None
    environment: str | None
    environment_colour: str
    trace_link: str | None


@dataclass(frozen=True, slots=True)
class Config:
    """A complete, valid configuration. Spans are milliseconds, sizes bytes.

    url             which engine, and where its store is
    app             where the handlers are, as "module:variable"; None: nobody said so
    sweep_interval  a queue nobody consumes is swept at least this often
    sweep_batch     how much one sweep call does at most; a full one is repeated at once
    max_body        the largest body that can be put
    keeper_ttl      a keeper that is silent for this long loses its lock
    poll_timeout    how long an idle consumer waits before it looks again anyway
    durability      "replicated": a put returns when a replica has it too, within replication_timeout
    spool           the URL of a spool, which takes puts while the store is away; None: there is none
    health_check_timeout  how long the store may take to answer before the spool takes over
    spool_capacity  how many messages the spool may hold, and spool_bytes how much of bodies
    idempotency_every_task  whether every handler runs once for each message, and
    idempotency_ttl         how long it is known that it did
    telemetry       whether waits and work are measured, and kept in the store
    tracing         whether puts and work are OpenTelemetry spans
    default         the policy of every queue without a table of its own
    declared        the policies of the queues that have one
    roles           the worker roles
    source          the file that was read, if any
    settings        every setting of the top level
    tables          what the queues' own tables give, and nothing else
    role_tables     every setting of the roles
    schedules       what to put when, by name
    schemas         the JSON Schema that an edited payload of a kind must fit: the name of its file
    """

    url: str = field(repr=False)  # it may hold a password
    app: str | None
    sweep_interval: int
    sweep_batch: int
    max_body: int
    keeper_ttl: int
    poll_timeout: int
    durability: str
    replication_timeout: int
    spool: str | None = field(repr=False)
    health_check_timeout: int
    spool_capacity: int
    spool_bytes: int
    idempotency_every_task: bool
    idempotency_ttl: int
    telemetry: bool
    tracing: bool
    default: Policy
    declared: Mapping[str, Policy]
    roles: Mapping[str, Role]
    source: Source
    settings: Layer = field(repr=False)
    tables: Mapping[str, Layer] = field(repr=False)
    role_tables: Mapping[str, Layer] = field(repr=False)
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str | None:
        """The file that was read; None without one."""
        return self.source.file

    @property
    def http(self) -> Http:
        """What the server is told."""
        return Http(*(self.settings[f"http_{name}"].value for name in Http._fields))

    def policy(self, queue: str) -> Policy:
        """What this queue promises, whether or not it has a table."""
        return self.declared.get(queue, self.default)

    def role(self, name: str) -> Role:
        """The role of this name. Raises ConfigError, naming those that there are."""
        if name in self.roles:
            return self.roles[name]
        there = f"there is {', '.join(self.roles)}" if self.roles else "no role is configured"
        raise ConfigError(f"role {name!r}: unknown; {there}")

    def share(self, queue: str) -> Share:
        """What this queue may have of one worker."""
        return _share(self.tables.get(queue, {})) or WHOLE

    @property
    def routes(self) -> dict[str, str]:
        """Which tasks of Celery go to which queue: names, or patterns such as "mail.*"."""
        tables = {queue: table["tasks"].value for queue, table in self.tables.items() if "tasks" in table}
        return {task: queue for queue, tasks in tables.items() for task in tasks or ()}

    def settings_of(self, queue: str) -> Layer:
        """What holds for a queue, setting by setting, each with its origin."""
        off = dict.fromkeys((*known.SHARE, *known.ROUTING), Setting(None, "default"))
        given = {**off, **_holding(self.settings, self.tables.get(queue, {}))}
        return {name: given[name] for name in (*known.POLICY, *known.SHARE, *known.ROUTING)}

    def for_tasks(self) -> Config:
        """The same, as a Celery app goes by it: where nobody gives an ack_timeout, there is none."""
        if self.origin_of(None, "ack_timeout") != "default":
            return self
        settings = {**self.settings, **_OF_TASKS}
        return replace(self, settings=settings, **_policies(settings, self.tables))

    def origin_of(self, queue: str | None, setting: str) -> str:
        """Where a setting of this queue was given; without a queue, of the top level."""
        layer = self.settings if queue is None else self.settings_of(queue)
        name = known.canonical(setting)
        if name not in layer:
            raise ConfigError(f"{setting}: {_unknown(setting, layer)}")
        return layer[name].origin


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    **arguments: Any,
) -> Config:
    """The configuration from all layers, or ConfigError.

    The file is `path`, else the one POSTROOM_CONFIG names, else ./postroom.toml if there is one.
    An argument of None turns off what can be turned off.
    """
    source = sources.read(path, environ)
    content = _flat(f"{source.file}", dict(source.content))
    tables = _tables(source, "queues", content.pop("queues", {}), known.QUEUE)
    roles = _tables(source, "roles", content.pop("roles", {}), known.ROLE)
    schedules = _schedules(f"{source.file}", content.pop("schedule", {}))
    kinds = _tables(source, "kinds", content.pop("kinds", {}), known.KIND)
    top = _spelling(*known.TOP_LEVEL, "queues", "roles", "schedule", "kinds")
    settings = {
        **{name: Setting(value, "default") for name, value in known.DEFAULTS.items()},
        **_layer(f"{source.origin}: ", content, top, known.TOP, origin=source.origin),
        **_environment(environ),
        **_layer("argument ", arguments, _spelling(*known.TOP_LEVEL), known.TOP, origin="argument"),
    }
    complete = {name: _complete(source, name, roles[name]) for name in roles}
    config = _config(source, settings, tables, complete, schedules)
    _check_labels(config)
    return replace(config, schemas={kind: _beside(source, table) for kind, table in kinds.items() if table})


def _beside(source: Source, table: Layer) -> str:
    """The file of a schema: its name is as seen from the file that names it."""
    from pathlib import Path  # here and not above: hardly anybody names one

    return str(Path(source.file or "").absolute().parent / table["schema"].value)


def _config(
    source: Source,
    settings: Layer,
    tables: Mapping[str, Layer],
    role_tables: Mapping[str, Layer],
    schedules: Mapping[str, Schedule],
) -> Config:
    shares = {queue: share for queue, table in tables.items() if (share := _share(table))}
    return Config(
        url=settings["url"].value,
        app=settings["app"].value,
        sweep_interval=milliseconds(settings["sweep_interval"].value),
        sweep_batch=settings["sweep_batch"].value,
        max_body=known.size_in_bytes(settings["max_body"].value),
        keeper_ttl=milliseconds(settings["keeper_ttl"].value),
        poll_timeout=milliseconds(settings["poll_timeout"].value),
        durability=settings["durability"].value,
        replication_timeout=milliseconds(settings["replication_timeout"].value),
        spool=settings["spool"].value,
        health_check_timeout=milliseconds(settings["health_check_timeout"].value),
        spool_capacity=settings["spool_capacity"].value,
        spool_bytes=known.size_in_bytes(settings["spool_bytes"].value),
        idempotency_every_task=settings["idempotency_every_task"].value,
        idempotency_ttl=milliseconds(settings["idempotency_ttl"].value),
        telemetry=settings["telemetry"].value,
        tracing=settings["tracing"].value,
        **_policies(settings, tables),
        roles={name: _role(name, table, shares) for name, table in role_tables.items()},
        source=source,
        settings=settings,
        tables=tables,
        role_tables=role_tables,
        schedules=schedules,
    )


#: Nobody who writes a task expects it to be stopped, unless somebody said after how long.
_OF_TASKS: Layer = {"ack_timeout": Setting(None, "default of Celery's tasks")}


def _holding(settings: Layer, table: Layer) -> Layer:
    """What holds for a queue with this table; where Celery's tasks are sent, with what is usual there."""
    has_tasks = "tasks" in table and table["tasks"].value
    usual = _OF_TASKS if has_tasks and settings["ack_timeout"].origin == "default" else {}
    return {**settings, **usual, **table}


def _policies(settings: Layer, tables: Mapping[str, Layer]) -> dict[str, Any]:
    """The two fields of a configuration that follow from the others."""
    declared = {queue: _policy(_holding(settings, table)) for queue, table in tables.items()}
    return {"default": _policy(settings), "declared": declared}


def _policy(settings: Layer) -> Policy:
    return Policy.from_text({name: setting.value for name, setting in settings.items()})


def _share(table: Layer) -> Share | None:
    given = {name: table[name].value for name in known.SHARE if name in table}
    return Share(**given) if given else None


def _role(name: str, table: Layer, shares: Mapping[str, Share]) -> Role:
    queues = tuple(table["queues"].value)
    return Role(
        name,
        queues,
        concurrency=table["concurrency"].value,
        prefetch=table["prefetch"].value,
        order=table["order"].value,
        weights=table["weights"].value,
        stop_timeout=milliseconds(table["stop_timeout"].value),
        shares={queue: shares[queue] for queue in queues if queue in shares},
    )


# ---- postroom.toml --------------------------------------------------------------------------------


def _flat(file: str, content: dict[str, Any]) -> dict[str, Any]:
    """`[idempotency] ttl` is `idempotency_ttl` in every other layer."""
    flat = {name: value for name, value in content.items() if name not in known.TABLES}
    for table in content.keys() & set(known.TABLES):
        if not isinstance(content[table], dict):
            raise ConfigError(f"{file}: {table}: expected a table [{table}], not {content[table]!r}")
        there = [name.removeprefix(f"{table}_") for name in known.TOP_LEVEL if name.startswith(f"{table}_")]
        for name in content[table]:
            if name not in there:
                raise ConfigError(f"{file}: [{table}] {name}: {_unknown(name, there)}")
        flat |= {f"{table}_{name}": value for name, value in content[table].items()}
    return flat


def _tables(source: Source, kind: str, tables: Any, level: Level) -> dict[str, Layer]:
    if not isinstance(tables, dict):
        raise ConfigError(f"{source.file}: {kind}: expected tables such as [{kind}.emails], not {tables!r}")
    return {name: _table(source, kind, name, table, level) for name, table in tables.items()}


def _table(source: Source, kind: str, name: str, table: Any, level: Level) -> Layer:
    try:
        check_name(name, f"{kind.removesuffix('s')} name")
    except InvalidInput as error:
        raise ConfigError(f"{source.file}: [{kind}] {error}") from None
    where = source.heading(kind, name)
    if not isinstance(table, dict):
        raise ConfigError(f"{source.file}: {where} expected a table of settings, not {table!r}")
    for key, value in table.items():
        if key in level.readers:
            continue
        if key in known.ROOM:
            raise ConfigError(f"{source.file}: {where} {key}: belongs to the top of the file")
        if isinstance(value, dict):
            dotted = source.heading(kind, f"{name}.{key}")
            raise ConfigError(f"{source.file}: {where} {key!r}: a name with a dot is written {dotted}")
    names = _spelling(*level.readers)
    return _layer(f"{source.file}: {where} ", table, names, level, origin=f"{source.file} {where}")


def _complete(source: Source, name: str, table: Layer) -> Layer:
    """A role's settings, those too that it does not give."""
    if "queues" not in table:
        where = source.heading("roles", name)
        raise ConfigError(f"{source.file}: {where} queues: missing; a role works on at least one queue")
    defaults = {key: Setting(value, "default") for key, value in known.ROLE_DEFAULTS.items()}
    complete = {**defaults, **table}
    return {key: complete[key] for key in known.ROLE_LEVEL}


def _schedules(file: str, tables: Any) -> dict[str, Schedule]:
    if not isinstance(tables, dict):
        raise ConfigError(f"{file}: schedule: expected tables such as [schedule.nightly], not {tables!r}")
    if len(tables) > MAX_BATCH:
        raise ConfigError(f"{file}: {len(tables):,} schedules are more than {MAX_BATCH:,}")
    return {name: _schedule(f"{file}: [schedule.{name}]", name, table) for name, table in tables.items()}


def _check_labels(config: Config) -> None:
    """Whether the queue of each schedule knows its priority."""
    for name, schedule in config.schedules.items():
        try:
            config.policy(schedule.queue).priority(schedule.priority)
        except InvalidInput as error:
            raise ConfigError(f"{config.file}: [schedule.{name}] {error}") from None


def _schedule(place: str, name: str, table: Any) -> Schedule:
    if not isinstance(table, dict):
        raise ConfigError(f"{place} expected a table of settings, not {table!r}")
    for key in table:
        if key not in timetable.SETTINGS:
            raise ConfigError(f"{place} {key}: {_unknown(key, timetable.SETTINGS)}")
    try:
        return timetable.read(name, table)
    except InvalidInput as error:
        raise ConfigError(f"{place} {error}") from None


# ---- The environment ------------------------------------------------------------------------------


def _environment(environ: Mapping[str, str]) -> Layer:
    """What the variables give; an empty one counts as not set."""
    names = {f"{PREFIX}{name.upper()}": name for name in known.TOP_LEVEL}
    given = {
        variable: known.from_variable(names.get(variable, ""), text.strip())
        for variable, text in environ.items()
        if variable.startswith(PREFIX) and text.strip() and not _is_foreign(variable)
    }
    return _layer("", given, names, known.TOP, origin=None)


def _is_foreign(variable: str) -> bool:
    return variable == sources.VARIABLE or _SERVICE_LINK.match(variable) is not None


# ---- Any layer ------------------------------------------------------------------------------------


def _spelling(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def _layer(
    where: str, given: Mapping[str, Any], names: Mapping[str, str], level: Level, *, origin: str | None
) -> Layer:
    """What one layer gives, checked. `names` maps its spelling of a setting to the setting.

    Without an `origin`, each value's own spelling is its origin, as for a variable.
    """
    layer: dict[str, Setting] = {}
    for spelled, value in given.items():
        place = where + (spelled if spelled.isidentifier() else repr(spelled))
        if spelled not in names:
            raise ConfigError(f"{place}: {_unknown(spelled, names)}")
        name = known.canonical(names[spelled])
        if name in layer:
            both = " and ".join(key for key in given if known.canonical(names.get(key, "")) == name)
            raise ConfigError(f"{place}: {both} set the same thing; give one of them")
        layer[name] = Setting(_value(place, names[spelled], value, level), origin or spelled)
    return _with_lease(layer, {names[spelled]: spelled for spelled in given}, origin)


def _with_lease(layer: dict[str, Setting], given: Mapping[str, str], origin: str | None) -> Layer:
    """A visibility timeout says how long the work may take, and so what a lease is good for."""
    spelled = given.get("visibility_timeout")
    if spelled and "lease" not in layer:
        lease = known.lease_within(layer["ack_timeout"].value)
        layer["lease"] = Setting(lease, f"{origin}, by visibility_timeout" if origin else spelled)
    return layer


def _value(place: str, name: str, value: Any, level: Level) -> Any:
    try:
        return level.written(name, value)
    except (ValueError, OverflowError) as error:  # InvalidInput, or a number beyond all bounds
        expected = str(error).removeprefix(f"{known.canonical(name)}: ").removeprefix(f"{name}: ")
        alternative = f' (or "{known.OFF}")' if name in level.off else ""
        raise ConfigError(f"{place}: {expected}{alternative}") from None


def _unknown(spelled: str, names: Collection[str]) -> str:
    import difflib

    # Without the prefix, or every variable would look like every other.
    bare = {name.removeprefix(PREFIX): name for name in names}
    close = difflib.get_close_matches(spelled.removeprefix(PREFIX), bare, n=1)
    return f"unknown setting; did you mean {bare[close[0]]}?" if close else "unknown setting"
