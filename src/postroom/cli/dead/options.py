"""What the commands about dead letters take, said once."""

from __future__ import annotations

from typing import Annotated

import typer

_VIEW = "A queue, or a dead-letter name such as dlq_fast; without it, all."

Url = Annotated[
    str | None,
    typer.Option("--url", "-u", metavar="URL", help="The store; else as configured (postroom config show)."),
]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
View = Annotated[str | None, typer.Argument(metavar="[NAME]", help=_VIEW)]
Service = Annotated[
    str | None,
    typer.Option(
        "--service",
        "-s",
        metavar="MODULE[:VARIABLE]",
        help="The archive of the service whose events app is there.",
    ),
]
In = Annotated[str | None, typer.Option("--queue", "-q", metavar="NAME", help=_VIEW)]
Id = Annotated[str, typer.Argument(metavar="ID", help="A message, task or correlation id.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]", help="Message, task or correlation ids.")]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", "-w", metavar="NAME=VALUE", help="A condition; several must all hold."),
]
All = Annotated[bool, typer.Option("--all", help="Every dead letter, without any condition.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would be done.")]
Limit = Annotated[int, typer.Option("--limit", "-l", min=1, max=10_000, help="At most so many.")]
Cursor = Annotated[str | None, typer.Option("--cursor", metavar="CURSOR", help="Go on where a page ended.")]

# replay
To = Annotated[str | None, typer.Option("--to", metavar="QUEUE", help="Into this queue, not their own.")]
Body = Annotated[
    str | None,
    typer.Option(
        "--body", metavar="JSON", help="Another payload; for one ID. Of a Celery task its args and kwargs."
    ),
]
Rate = Annotated[str | None, typer.Option("--rate", metavar="RATE", help='No faster than "50/s", "30/m".')]
Canary = Annotated[bool, typer.Option("--canary", help="One first; the others if that one succeeds.")]
CanaryTimeout = Annotated[str, typer.Option(metavar="SPAN", help="Wait so long for that one.")]
Again = Annotated[bool, typer.Option("--again", help="Also what was replayed before.")]

# note
Status = Annotated[str | None, typer.Option("--status", help="open, acknowledged or resolved.")]
Bucket = Annotated[str | None, typer.Option("--bucket", help="bug, transient or poison.")]
Cause = Annotated[str | None, typer.Option("--cause", metavar="TEXT", help="The root cause.")]
Fix = Annotated[str | None, typer.Option("--fix", metavar="TEXT", help="How far the fix is.")]
Link = Annotated[str | None, typer.Option("--link", metavar="URL", help="A ticket, a chart, a commit.")]
