"""Bearer tokens: made here, kept as records, and only as hashes.

A token is `pr_ID_SECRET`. The id finds its record; the secret has 256 random bits, so that one round
of SHA-256 keeps it as safe as a slow hash would keep a password. Nobody can read it a second time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import NamedTuple

import msgspec

from postroom.engine import Engine
from postroom.errors import Conflict, InvalidInput, NotFound, PostroomError
from postroom.http.roles import ACTIONS, Action, Role
from postroom.limits import MAX_BATCH, check_name
from postroom.logs import Record

KIND = "token"
#: So many tokens at most: all of them fit into one list.
MAX_TOKENS = MAX_BATCH
#: `last_used` is this exact (ms): else every request would be a write.
USED_EVERY = 60_000
_TEXT = re.compile(r"pr_([0-9a-f]{16})_([\w-]{43})", re.ASCII)


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is kept: everything but the secret. Moments are by the engine's clock (ms)."""

    id: str
    name: str
    role: Role
    digest: str
    created: int
    #: Rights beyond the role, such as `put` for a program that only puts.
    allow: tuple[Action, ...] = ()
    expires: int | None = None
    last_used: int | None = None

    @property
    def actions(self) -> frozenset[Action]:
        return ACTIONS[self.role] | frozenset(self.allow)


class NewToken(NamedTuple):
    """A token that was just made; `text` is shown now and never again."""

    token: Token
    text: str


_decode = msgspec.json.Decoder(Token).decode


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def create(
    engine: Engine, name: str, role: Role, *, ttl: int | None = None, allow: frozenset[Action] = frozenset()
) -> NewToken:
    """Make a token for `name`; after `ttl` (ms) it is gone by itself. Names need not differ."""
    check_name(name, "token name")
    if ttl is not None and ttl <= 0:
        raise InvalidInput("expires: must be longer than nothing")
    if len(engine.records.list(KIND, limit=MAX_TOKENS)) >= MAX_TOKENS:
        raise Conflict(f"there are {MAX_TOKENS:,} tokens already: revoke what nobody uses")
    id, secret, now = secrets.token_hex(8), secrets.token_urlsafe(32), engine.now()
    token = Token(
        id=id,
        name=name,
        role=role,
        digest=digest_of(secret),
        created=now,
        allow=tuple(sorted(allow)),
        expires=None if ttl is None else now + ttl,
    )
    if engine.records.put(KIND, id, msgspec.json.encode(token), ttl=ttl, expect=0) is None:
        raise Conflict(f"a token {id} is there already: try again")
    return NewToken(token, f"pr_{id}_{secret}")


def verify(engine: Engine, text: str) -> Token | None:
    """The token that this text is, and a note that it was used; None for anything else."""
    match = _TEXT.fullmatch(text)
    record = engine.records.get(KIND, match[1]) if match else None
    if match is None or record is None:
        return None
    token = _read(record)
    if not hmac.compare_digest(token.digest, digest_of(match[2])):
        return None
    return _used(engine, token, record.version)


def find(engine: Engine, id: str) -> Token | None:
    """The token of this id, unless it has expired or was revoked."""
    record = engine.records.get(KIND, id)
    return None if record is None else _read(record)


def listed(engine: Engine) -> list[Token]:
    """Every token, the oldest first."""
    tokens = [_read(record) for record in engine.records.list(KIND, limit=MAX_TOKENS)]
    return sorted(tokens, key=lambda token: (token.created, token.id))


def revoke(engine: Engine, which: str) -> Token:
    """Delete the token of this id, or of this name if only one has it; its sessions end with it."""
    found = [token for token in listed(engine) if which in (token.id, token.name)]
    if not found:
        raise NotFound(f"there is no token {which!r:.80}")
    if len(found) > 1:
        raise Conflict(f"{len(found)} tokens are called {which!r}: say which by its id (postroom token ls)")
    if not engine.records.delete(KIND, found[0].id):
        raise NotFound(f"there is no token {which!r:.80}")
    return found[0]


def _used(engine: Engine, token: Token, version: int) -> Token:
    """Write down that it was used, unless that was done lately, or it was revoked meanwhile."""
    now = engine.now()
    ttl = None if token.expires is None else token.expires - now
    if (token.last_used or 0) > now - USED_EVERY or (ttl is not None and ttl <= 0):
        return token
    used = msgspec.structs.replace(token, last_used=now)
    try:
        engine.records.put(KIND, token.id, msgspec.json.encode(used), ttl=ttl, expect=version)
    except PostroomError:
        return token  # a store that is full can still be looked at
    return used


def _read(record: Record) -> Token:
    return _decode(record.value)
