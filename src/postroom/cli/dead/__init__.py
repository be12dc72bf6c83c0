"""`postroom dead`: look at dead letters, note what is known, replay or discard them, keep them in files.

`looking` has the commands that change nothing, `working` those that do, `files` export and import;
`options` is what they take, `tables` how they show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def register(root: typer.Typer) -> None:
    from postroom.cli.dead import files, looking, working

    root.add_typer(looking.app, name="dead", help="Look at dead letters, note, replay, discard, export.")
    working.register(looking.app)
    files.register(looking.app)
