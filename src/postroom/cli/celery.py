"""`postroom celery`: what an app on Celery needs beside Celery's own commands."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from postroom.cli import celery_worker, output

if TYPE_CHECKING:
    from postroom.celery.migrate import Plan, Report
    from postroom.celery.stock import StockRedis

app: typer.Typer = typer.Typer(no_args_is_help=True)


class Priority(StrEnum):
    """As `postroom.celery.migrate.Priorities`, said here so that the help needs no Celery."""

    ZERO_IS_HIGHEST = "zero-is-highest"
    TURNED = "turned"
    SAME = "same"


From = Annotated[str, typer.Option("--from", metavar="URL", help="The broker_url of today: redis://…")]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="URL", help="The new one: postroom+redis://…; else the configured store."),
]
Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", "-q", metavar="NAME", help="Only this queue, whatever is in it; repeatable."),
]
Priorities = Annotated[Priority, typer.Option("--priorities", help="What becomes of priorities; see above.")]
Prefix = Annotated[str, typer.Option("--prefix", metavar="TEXT", help="The old global_keyprefix.")]
Master = Annotated[
    str | None, typer.Option("--master", metavar="NAME", help="The old master_name, for sentinel://.")
]
Sep = Annotated[
    str | None, typer.Option("--sep", metavar="TEXT", help="The old sep, if the transport options have one.")
]
Unacked = Annotated[bool, typer.Option("--unacked", help="Also what workers held when they ended.")]
Busy = Annotated[bool, typer.Option("--while-workers-run", help="Although old workers are connected.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of tables.")]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="celery", help="Run Celery workers here, and bring an app over.")


@app.callback()
def celery() -> None:
    """Run Celery workers on the configured store, and bring an app over from Redis."""


celery_worker.register(app)


@app.command()
def migrate(
    old: From,
    to: To = None,
    queues: Queues = None,
    priorities: Priorities = Priority.ZERO_IS_HIGHEST,
    unacked: Unacked = False,
    prefix: Prefix = "",
    master: Master = None,
    sep: Sep = None,
    while_workers_run: Busy = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Move the waiting tasks of kombu's own Redis transport to Postroom.

    It first says what it found and what it would do, and asks. Stop the old workers before: a task
    that one of them takes at the same moment would run twice. Killed in the middle, the same command
    goes on within a day: nothing is lost and nothing is there twice. Keys that it does not know, and
    bindings, which the app declares again, stay as they are. Needs Redis 6 or newer.

    \b
    Examples:
      postroom celery migrate --from redis://localhost:6379/0 --dry-run
      postroom celery migrate --from redis://old/0 --to postroom+redis://new/0 --yes
      postroom celery migrate --from redis://localhost:6379/0 -q emails --priorities turned
      postroom celery migrate --from redis://localhost:6379/0 --sep :

    \b
    Priorities: kombu's Redis transport takes 0 for the most urgent, Postroom 255.
      zero-is-highest   for apps with the option priority_zero_is_highest, which keeps its order
      turned            for apps that turned their numbers round: 0 becomes 9, 9 becomes 0
      same              the number stays: what was least urgent is most urgent now
    """
    from postroom.cli.progress import Meter

    _need_celery()
    from postroom.celery.migrate import look
    from postroom.celery.stock import StockRedis

    target, meter = _target(to), Meter("looking through the keys")
    with StockRedis(old, prefix, master, sep) as store:
        plan = look(store, queues or (), lambda: meter(0))
        meter.clear()
        _show(plan, unacked, priorities, json=json, dry_run=dry_run)
        if dry_run or not _something(plan, unacked):
            return
        _refuse_while_workers_run(plan, while_workers_run)
        report = _carry_out(store, target, plan, priorities, unacked, yes)
    _finish(report, json)


def _need_celery() -> None:
    from importlib.util import find_spec

    from postroom.errors import MissingExtra

    if missing := [name for name in ("celery", "redis") if find_spec(name) is None]:
        raise MissingExtra(f"{missing[0]} is not installed: pip install 'postroom[celery,redis]'")


def _target(to: str | None) -> str:
    from postroom.config import load
    from postroom.room import read_url

    url = (to or load().url).removeprefix("postroom+")
    read_url(url)
    return url


def _something(plan: Plan, unacked: bool) -> bool:
    if plan.count or (unacked and plan.unacked):
        return True
    output.say("there is nothing to move")
    return False


def _refuse_while_workers_run(plan: Plan, anyway: bool) -> None:
    from postroom.errors import Conflict

    if plan.workers and not anyway:
        raise Conflict(
            f"{plan.workers} connections look like Celery workers on the old transport (or Flower): "
            "stop them first, or say --while-workers-run and let some tasks run twice"
        )


def _carry_out(
    store: StockRedis, target: str, plan: Plan, priorities: Priority, unacked: bool, yes: bool
) -> Report:
    from postroom.celery import migrate as moving
    from postroom.celery.office import Office
    from postroom.celery.options import Options
    from postroom.cli.consent import consent
    from postroom.cli.progress import Bar

    count = plan.count + (plan.unacked if unacked else 0)
    consent(f"move {count:,} messages?", yes=yes)
    office = Office(target, Options())
    try:
        with Bar("moving") as bar:
            migration = moving.Migration(store, office, moving.Priorities(priorities))
            return migration.run(plan, unacked=unacked, on_progress=bar)
    finally:
        office.close()


# --- words ------------------------------------------------------------------------------------------


def _show(plan: Plan, unacked: bool, priorities: Priority, *, json: bool, dry_run: bool) -> None:
    """The plan, and what a person should know. After it, only the report is data, if both are JSON."""
    if json and dry_run:
        output.as_json(plan.as_dict())
    rows = [(found, "yes") for found in plan.move] + [(found, "no") for found in plan.leave]
    if rows and not json:
        cells = [(w.queue, str(w.step), f"{w.count:,}", str(w.holds), moves) for w, moves in rows]
        output.table(("queue", "priority", "waiting", "holds", "moves"), cells)
    for line in _remarks(plan, unacked, priorities):
        output.say(line)


def _remarks(plan: Plan, unacked: bool, priorities: Priority) -> list[str]:
    lines = [f"to move: {plan.count:,}; priorities: {priorities} (in the old lists 0 is the most urgent)"]
    if plan.unacked:
        held = f"{plan.unacked:,} messages are in the hands of workers, or of workers that were killed"
        lines.append(
            f"{held}: they move too; what still runs will run twice"
            if unacked
            else f"{held}: they stay (--unacked moves them, once no old worker runs)"
        )
    if plan.workers is None:
        lines.append("whether old workers are connected could not be asked: make sure that none is")
    elif plan.workers:
        lines.append(f"{plan.workers} connections look like old workers, or Flower: stop them first")
    if plan.exchanges:
        lines.append(f"exchanges with bindings, which the app declares again: {_some(plan.exchanges)}")
    if plan.unknown:
        lines.append(f"lists that are none of kombu's, left alone: {_some(plan.unknown)}")
    return lines


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _finish(report: Report, json: bool) -> None:
    """What came of it; messages that stayed are worth an exit code."""
    if json:
        output.as_json(report.as_dict())
    for queue, count in report.moved.items() if not json else ():
        print(f"{queue}  {count}")
    for reason in report.reasons:
        output.say(f"stays where it is: {reason}")
    already, kept = report.already.total(), report.kept.total()
    parts = [f"moved: {report.moved.total():,}"]
    if already:
        parts.append(f"{already:,} were here already, from a run that was cut short")
    if kept:
        parts.append(f"{kept:,} stay in their old lists")
    output.say("; ".join(parts))
    if kept:
        raise typer.Exit(1)
