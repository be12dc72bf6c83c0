"""What many commands take, said once."""

from __future__ import annotations

from typing import Annotated

import typer

Url = Annotated[
    str | None,
    typer.Option("--url", "-u", metavar="URL", help="The store; else as configured (postroom config show)."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]
