"""The commands that look at dead letters, and note what is known about them."""

from __future__ import annotations

from typing import Annotated

import typer

from postroom.cli import output, progress
from postroom.cli.dead import options as take

app: typer.Typer = typer.Typer(no_args_is_help=True)


@app.command()
def ls(
    name: take.View = None,
    where: take.Where = None,
    limit: take.Limit = 20,
    cursor: take.Cursor = None,
    service: take.Service = None,
    url: take.Url = None,
    json: take.Json = False,
) -> None:
    """List dead letters, oldest first within a queue.

    \b
    Examples:
      postroom dead ls                                  all queues
      postroom dead ls dlq_fast                         every queue whose policy names it
      postroom dead ls -w class=timeout -w older=2h
      postroom dead ls --service billing                the archive of a service of events
      postroom dead ls -w 'error=timed out' -w payload.user.id=42 --json | jq .letters[].id

    \b
    Conditions: kind, error (a part of it), class, group, task, older, newer, since, until, attempts
      (at least), replayed (yes or no), payload.FIELD.
    A search looks at 100,000 letters and for 5 s at most, and says where it stopped.
    """
    from postroom.cli.dead import tables
    from postroom.cli.dead.view import letters
    from postroom.deadletters import Filter

    with letters(url, name, service) as view:
        with progress.patience("looking for"):
            found = view.find(Filter.parse(where or []), limit=limit, cursor=cursor)
            advice = view.on_dead(letter.queue for letter in found.letters)
        tables.say_evicted(view)
    if json:
        rest = {
            "scanned": found.scanned, "complete": found.complete, "cursor": found.cursor,
            "stopped_by": found.stopped_by,
        }  # fmt: skip
        shown = [letter.as_dict() for letter in found.letters]
        output.as_json({"letters": shown, "on_dead": advice, **rest})
    else:
        output.table(tables.LETTERS, [tables.letter_row(letter) for letter in found.letters])
        tables.say_advice(advice)
    if not found.complete:
        more = "there may be more" if found.stopped_by == "limit" else "the search stopped at its bound"
        output.say(f"{more} ({found.scanned:,} looked at): go on with --cursor {found.cursor}")


@app.command()
def groups(
    name: take.View = None,
    limit: take.Limit = 20,
    service: take.Service = None,
    url: take.Url = None,
    json: take.Json = False,
) -> None:
    """Show what failed alike: how often, since when, of which class, and what is known about it.

    \b
    Examples:
      postroom dead groups dlq_fast
      postroom dead groups --json | jq '.groups[] | select(.incident == null)'

    \b
    Then: postroom dead ls -w group=GROUP    its letters; the beginning of the name is enough
          postroom dead note GROUP ...       what you found out
    """
    from postroom.cli.dead import tables
    from postroom.cli.dead.view import letters

    with letters(url, name, service) as view:
        with progress.patience("looking for"):
            found = view.groups(limit)
            advice = view.on_dead(queue for group in found.groups for queue in group.queues)
        tables.say_evicted(view)
    if json:
        shown = [group.as_dict() for group in found.groups]
        output.as_json({"groups": shown, "on_dead": advice, "complete": found.complete})
    else:
        output.table(tables.GROUPS, [tables.group_row(group) for group in found.groups])
        tables.say_advice(advice)
    if not found.complete:
        output.say("there are more groups: --limit shows more")


@app.command()
def show(
    id: take.Id,
    queue: take.In = None,
    service: take.Service = None,
    url: take.Url = None,
    json: take.Json = False,
) -> None:
    """Show one dead letter: task, arguments, exception, traceback, attempts, replays, what to do about it.

    \b
    Examples:
      postroom dead show 0199a3b0c1d24e5f8a9b0c1d2e3f4a5b
      postroom dead show TASK_ID --json | jq -r .traceback
    """
    from postroom.cli.dead import tables
    from postroom.cli.dead.view import letters

    with letters(url, queue, service) as dead:
        letter = dead.get(id)
        advice, incident = dead.on_dead([letter.queue]).get(letter.queue), dead.incident(letter.group)
    if json:
        known = {"on_dead": advice, "incident": incident and incident.as_dict()}
        output.as_json(letter.as_dict() | {name: value for name, value in known.items() if value})
    else:
        print("\n".join(tables.letter_lines(letter, advice, incident)))


@app.command()
def note(
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="Its name or the beginning.")] = None,
    text: Annotated[str, typer.Argument(metavar="[TEXT]", help="What happened.")] = "",
    status: take.Status = None,
    bucket: take.Bucket = None,
    cause: take.Cause = None,
    fix: take.Fix = None,
    link: take.Link = None,
    service: take.Service = None,
    url: take.Url = None,
    json: take.Json = False,
) -> None:
    """Note what is known about a group; without anything to note, show it; without a group, all.

    \b
    Examples:
      postroom dead note 3fb2 --status acknowledged --bucket transient
      postroom dead note 3fb2 'mail server down' --cause 'full disk' --fix deployed --link https://…
      postroom dead note 3fb2 --status resolved     opened again by the next letter that dies so
      postroom dead note                            the incident log
    """
    from postroom.cli.dead import tables
    from postroom.cli.dead.view import letters
    from postroom.errors import NotFound

    given = {"status": status, "bucket": bucket, "cause": cause, "fix": fix, "link": link}
    with letters(url, None, service) as dead:
        if group is None:
            incidents = dead.incidents()
        elif text or any(value is not None for value in given.values()):
            incidents = [dead.note(group, text, **given)]
        elif known := dead.incident(group):
            incidents = [known]
        else:
            raise NotFound(f"nothing is noted about group {group}")
    if json:
        shown = [incident.as_dict() for incident in incidents]
        output.as_json({"incidents": shown} if group is None else shown[0])
    elif group is None:
        output.table(tables.INCIDENTS, [tables.incident_row(incident) for incident in incidents])
    else:
        print("\n".join(tables.incident_lines(incidents[0])))
