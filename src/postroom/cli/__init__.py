"""The `postroom` command: noun and verb, the same words as everywhere else.

Data goes to stdout, talk to stderr; an expected error is one line and an exit code that scripts
can rely on:

    0  ok                     4  conflict, or the lease is lost
    1  error                  5  the store cannot be reached
    2  usage                  6  unhealthy
    3  not found

Only this package imports typer and rich, and only once a command runs.
"""

from __future__ import annotations

import logging
import os
import sys

from postroom.errors import MissingExtra, PostroomError

# A command says itself what went wrong; those that run for long begin a log (`logs.begin`).
logging.getLogger("postroom").addHandler(logging.NullHandler())

UNHEALTHY = 6
#: As shells have it for what SIGINT has ended: at once, by a second signal.
INTERRUPTED = 130

#: By error code; an error without a row has the exit code of its parent.
EXIT_CODES = {
    "error": 1,
    "invalid_input": 2,
    "not_found": 3,
    "conflict": 4,
    "lease_lost": 4,
    "engine_unavailable": 5,
}
HINTS = {
    "config_error": "all settings: postroom config show --help",
    "engine_unavailable": "which store is meant: postroom config show",
    "lease_lost": "another consumer has it now, or it is settled",
}


def main() -> int:
    """Run the command line and return its exit code; never a traceback for an expected error."""
    try:
        from postroom.cli.app import run

        return run()
    except PostroomError as error:
        return complain(error)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in {"typer", "rich"}:
            raise
        words = f"the command line needs {error.name}, which is not installed: pip install 'postroom[cli]'"
        return complain(MissingExtra(words))
    finally:
        _flush()


def complain(error: PostroomError, hint: str = "") -> int:
    """Say the error in one line, with a hint, and return the exit code it stands for."""
    hint = hint or HINTS.get(error.code, "")
    line = " ".join(f"postroom: {error}".split())
    sys.stderr.write(f"{line} ({hint})\n" if hint else f"{line}\n")
    return exit_code(error)


def exit_code(error: PostroomError) -> int:
    codes = (getattr(kind, "code", "") for kind in type(error).__mro__)
    return next(EXIT_CODES[code] for code in codes if code in EXIT_CODES)


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # `postroom … | head` has seen enough; without this Python complains while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
