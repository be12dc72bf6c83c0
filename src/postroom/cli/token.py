"""`postroom token`: who may use the server, and what they may do there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli import output
from postroom.cli.options import Json, Url

if TYPE_CHECKING:
    from postroom.http.tokens import Token

app: typer.Typer = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Who or what uses it; stands in the audit.")]
Which = Annotated[str, typer.Argument(metavar="TOKEN", help="Its id, or its name if only one has it.")]
RoleName = Annotated[str, typer.Option("--role", "-r", metavar="ROLE", help="viewer, operator or admin.")]
Expires = Annotated[
    str | None, typer.Option("--expires", "-e", metavar="SPAN", help="Gone after so long, such as 90d.")
]
Allow = Annotated[
    list[str] | None, typer.Option("--allow", "-a", metavar="ACTION", help="A right beyond the role.")
]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="token", help="Make and revoke the tokens of the server.")


@app.command()
def create(
    name: Name,
    role: RoleName = "viewer",
    expires: Expires = None,
    allow: Allow = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Make a token and print it: once, because only its hash is kept.

    From the first token on, a server that is started on this store asks everybody for one.

    \b
    Examples:
      postroom token create ada --role admin --expires 90d
      postroom token create shop --allow put            a program that may look and put
      TOKEN=$(postroom token create ci --role operator)
    """
    from postroom import audit
    from postroom.cli.store import opened
    from postroom.duration import milliseconds
    from postroom.http import tokens
    from postroom.http.roles import read_actions, read_role

    ttl = None if expires is None else milliseconds(expires, "expires")
    with opened(url) as room:
        made = tokens.create(room.engine, name, read_role(role), ttl=ttl, allow=read_actions(allow or ()))
        audit.note(room.engine, "token.create", id=made.token.id, name=name, role=made.token.role)
    if json:
        output.as_json(_document(made.token) | {"token": made.text})
    else:
        print(made.text)
        output.say(f"token {made.token.id} of {name} ({made.token.role}); it is not shown again")


@app.command()
def ls(url: Url = None, json: Json = False) -> None:
    """List the tokens: whose they are, what they may do, until when, when they were last used.

    \b
    Examples:
      postroom token ls
      postroom token ls --json | jq '.[] | select(.last_used == null) | .id'
    """
    from postroom.cli.store import opened
    from postroom.http import tokens

    with opened(url) as room:
        found = [_document(token) for token in tokens.listed(room.engine)]
    if json:
        output.as_json(found)
    else:
        columns = ("id", "name", "role", "allow", "created", "expires", "last_used")
        output.table(columns, [[_cell(said[column]) for column in columns] for said in found])


@app.command()
def revoke(token: Which, url: Url = None, json: Json = False) -> None:
    """Revoke a token, and with it the browser sessions that came from it; servers notice in 2 s.

    \b
    Examples:
      postroom token revoke ada
      postroom token revoke 4f1c0a9be2d37788
    """
    from postroom import audit
    from postroom.cli.store import opened
    from postroom.http import tokens

    with opened(url) as room:
        revoked = tokens.revoke(room.engine, token)
        audit.note(room.engine, "token.revoke", id=revoked.id, name=revoked.name)
    if json:
        output.as_json(_document(revoked))
    else:
        output.say(f"token {revoked.id} of {revoked.name} is revoked")


def _document(token: Token) -> dict[str, Any]:
    from postroom.cli.times import moment

    return {
        "id": token.id,
        "name": token.name,
        "role": token.role.value,
        "allow": [action.value for action in token.allow],
        "created": moment(token.created),
        "expires": moment(token.expires),
        "last_used": moment(token.last_used),
    }


def _cell(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else value or "-"
