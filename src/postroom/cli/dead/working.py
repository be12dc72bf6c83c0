"""The commands that change something: replay and discard."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from postroom.cli import output
from postroom.cli.dead import options as take

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroom.deadletters import DeadLetter, DeadLetters, Filter, Result


def register(app: typer.Typer) -> None:
    app.command()(replay)
    app.command()(discard)


def replay(
    ids: take.Ids = None,
    queue: take.In = None,
    service: take.Service = None,
    where: take.Where = None,
    every: take.All = False,
    to: take.To = None,
    body: take.Body = None,
    rate: take.Rate = None,
    canary: take.Canary = False,
    canary_timeout: take.CanaryTimeout = "1m",
    again: take.Again = False,
    dry_run: take.DryRun = False,
    yes: take.Yes = False,
    url: take.Url = None,
    json: take.Json = False,
) -> None:
    """Put dead letters again, as new messages; the letters stay, marked.

    What was replayed before is left out, so the same command goes on where it was stopped. Out of
    an archive on RabbitMQ a letter is gone when it is replayed.

    \b
    Examples:
      postroom dead replay ID                              one
      postroom dead replay -q dlq_fast -w class=timeout --dry-run
      postroom dead replay -w group=3fb2 --canary --rate 50/s --yes
      postroom dead replay -w error=timeout --service billing   to that service, and no other
      postroom dead replay ID --to fast_default --body '{"user": 42}'

    \b
    Exit codes: 3 an ID is not there; 4 refused, or stopped early (queue full, canary failed).
    """
    from postroom.cli.dead.view import letters

    chosen, edit = _chosen(ids, where, every), _edit(body, ids)
    with letters(url, queue, service) as dead:
        _check_ids(dead, ids)
        run = partial(dead.replay, chosen, to=to, edit=edit, again=again, rate=rate,
                      canary=canary, canary_timeout=canary_timeout)  # fmt: skip
        result = _carry_out(run, "replay", dry_run, yes or bool(ids))
    _finish(result, json)


def discard(
    ids: take.Ids = None,
    queue: take.In = None,
    service: take.Service = None,
    where: take.Where = None,
    every: take.All = False,
    dry_run: take.DryRun = False,
    yes: take.Yes = False,
    url: take.Url = None,
    json: take.Json = False,
) -> None:
    """Let go of dead letters for good. Export them first if anybody may ask.

    \b
    Examples:
      postroom dead discard ID --yes
      postroom dead discard -q dlq_fast -w older=30d --dry-run
      postroom dead discard -w group=3fb2 --yes
    """
    from postroom.cli.dead.view import letters

    chosen = _chosen(ids, where, every)
    with letters(url, queue, service) as dead:
        _check_ids(dead, ids)
        run = partial(dead.discard, chosen)
        result = _carry_out(run, "discard", dry_run, yes)
    _finish(result, json)


def _chosen(ids: list[str] | None, where: list[str] | None, every: bool) -> Filter | list[str]:
    """By name, by conditions, or everything on purpose: exactly one of them."""
    from postroom.deadletters import Filter
    from postroom.errors import InvalidInput

    if bool(ids) + bool(where) + every != 1:
        raise InvalidInput("say which dead letters: by ID, by --where, or --all; one of the three")
    return ids or Filter.parse(where or [])


def _check_ids(dead: DeadLetters, ids: list[str] | None) -> None:
    """A name where an id belongs is not taken for an id that is not there: `dead ls` takes it so."""
    from postroom.errors import InvalidInput

    names = {name for info in dead.room.queues() for name in (info.name, info.policy.dead_letter)}
    for id in ids or ():
        if id in names:
            raise InvalidInput(f"{id} is a name and no ID: say -q {id}, with --where or --all")


def _edit(body: str | None, ids: list[str] | None) -> Callable[[DeadLetter], Any] | None:
    import json as text

    from postroom.errors import InvalidInput

    if body is None:
        return None
    if not ids or len(ids) != 1:
        raise InvalidInput("--body is the payload of one message: give exactly one ID")
    try:
        value = text.loads(body)
    except ValueError as error:
        raise InvalidInput(f"--body is not JSON ({error})") from error
    return lambda letter: value


def _carry_out(run: Callable[..., Result], verb: str, dry_run: bool, yes: bool) -> Result:
    """Count first and ask, unless told not to; then do it, with signs of life."""
    from postroom.cli.consent import consent
    from postroom.cli.progress import Meter

    if dry_run:
        return run(dry_run=True)
    if not yes:
        consent(f"{verb} {run(dry_run=True).eligible:,} dead letters?", yes=False)
    meter = Meter(f"{verb}: looked at")
    try:
        return run(on_progress=lambda progress: meter(progress.scanned, progress.total))
    finally:
        meter.clear()


def _finish(result: Result, json: bool) -> None:
    """Show what came of it, and end with the exit code that it deserves."""
    if json:
        output.as_json(result.as_dict())
    else:
        for id in result.ids:
            print(id)
        if result.done > len(result.ids):
            output.say(f"… and {result.done - len(result.ids):,} more")
    for refusal in result.refusals:
        output.say(f"{refusal.id}: {refusal.reason}")
    output.say(_summary(result))
    missing = any(refusal.missing for refusal in result.refusals)
    if missing or result.refused or result.stopped:
        raise typer.Exit(3 if missing else 4)


def _summary(result: Result) -> str:
    done = (
        f"would {result.action}: {result.eligible:,}"
        if result.dry_run
        else f"{result.action}: {result.done:,}"
    )
    parts = [done, f"{result.matched:,} matched of {result.scanned:,} looked at"]
    if result.already:
        parts.append(f"{result.already:,} were replayed before (--again takes them too)")
    if result.refused:
        parts.append(f"{result.refused:,} refused")
    if result.stopped:
        parts.append(f"stopped early: {result.stopped}; the same command goes on")
    return "; ".join(parts)
