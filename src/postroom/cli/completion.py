"""`postroom completion`: the words of the command line, for your shell."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(root: typer.Typer) -> None:
    root.command()(completion)


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the script with which a shell completes commands, options, queues and roles.

    \b
    Examples:
      postroom completion bash > /etc/bash_completion.d/postroom
      postroom completion zsh > "${fpath[1]}/_postroom"
      postroom completion fish > ~/.config/fish/completions/postroom.fish
      postroom --install-completion          for you alone, in the shell you are in
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # there, not in __all__

    typer.echo(
        get_completion_script(prog_name="postroom", complete_var="_POSTROOM_COMPLETE", shell=shell.value)
    )
