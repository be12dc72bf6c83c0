"""Who asks: from a bearer token, from the session of a browser, or simply from this machine.

The middleware finds out and changes nothing; the guard of a route decides. Whatever is done meanwhile
stands in the audit under the name that was found.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any

import msgspec
from litestar.enums import ScopeType

from postroom import audit
from postroom.addresses import is_loopback
from postroom.engine import Engine
from postroom.errors import ConfigError, EngineUnavailable, Forbidden, RateLimited, Unauthorized
from postroom.http import tokens
from postroom.http.roles import READ_ONLY, RIGHTS, Action
from postroom.http.tokens import Token
from postroom.policy import Rate

if TYPE_CHECKING:
    from litestar.connection import ASGIConnection
    from litestar.handlers.base import BaseRouteHandler
    from litestar.types import ASGIApp, Receive, Scope, Send

COOKIE = "postroom_session"
SESSION = "session"
#: How long a browser stays in (ms).
SESSION_TTL = 12 * 3_600_000
#: How long an answer of the store holds (seconds): a revoked token works so much longer.
KNOWN_FOR = 2.0
_KNOWN = 1_000
#: How often one token may log in: each time is a record and an act, and who may only look must not be able
#: to push all other acts out of the audit.
_LOGINS = Rate.parse("60/h"), 60
LOGIN = "login"


class Principal(msgspec.Struct, frozen=True):
    """Somebody who asks. `problem` says why the credentials they sent are worth nothing."""

    name: str
    actions: frozenset[Action]
    token: str = ""
    problem: str = ""

    def may(self, action: Action) -> bool:
        return action in self.actions

    def check(self, action: Action) -> None:
        """Raises Unauthorized while it is not known who asks, and Forbidden when they may not."""
        if self.may(action):
            return
        if self.problem:
            raise Unauthorized(self.problem)
        raise Forbidden(f"{self.name} may not {action}: ask for a token with this right")


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What a server asks of its clients; decided once, when it starts."""

    #: Whether a token is asked for.
    required: bool
    read_only: bool = False

    @classmethod
    def decide(cls, engine: Engine, host: str, *, read_only: bool = False, required: bool = False) -> Access:
        """Tokens are asked for if there are any, or if it is said so.

        Raises ConfigError rather than to stand open to a network. That the last token is revoked later
        opens nothing.
        """
        required = required or bool(engine.records.list(tokens.KIND, limit=1))
        if not (required or read_only or is_loopback(host)):
            raise ConfigError(
                f"{host} can be reached from elsewhere, and there is no token: make one with "
                '`postroom token create NAME --role admin`, or say --read-only (or auth = "required")'
            )
        return cls(required=required, read_only=read_only)

    def anonymous(self, problem: str = "") -> Principal:
        """Who sends no token, or one that is worth nothing."""
        if self.required:
            return Principal("anonymous", frozenset({Action.PUBLIC}), problem=problem or "a token is needed")
        return Principal("local", self.limited(frozenset(Action)))

    def limited(self, actions: frozenset[Action]) -> frozenset[Action]:
        return actions & READ_ONLY if self.read_only else actions


class Authenticator:
    """Finds the principal of a request; asks the store at most once in 2 s for each token or session."""

    def __init__(
        self, engine: Engine, access: Access, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.engine: Engine = engine
        self.access: Access = access
        self._clock = clock
        self._anonymous = access.anonymous()
        self._known: OrderedDict[bytes, tuple[float, Token]] = OrderedDict()

    async def principal(self, authorization: str, cookie: str) -> Principal:
        scheme, _, text = authorization.partition(" ")
        session = _session_in(cookie)
        if authorization:
            if scheme.lower() != "bearer":
                return self.access.anonymous("only bearer tokens are known here")
            token = await self._find(text.strip(), tokens.verify)
            problem = "the token is wrong, expired or revoked"
        elif session:
            token = await self._find(session, token_of_session)
            problem = "the session has ended: log in again"
        else:
            return self._anonymous
        if token is None:
            return Principal("anonymous", frozenset({Action.PUBLIC}), problem=problem)
        return Principal(token.name, self.access.limited(token.actions), token.id)

    async def _find(self, secret: str, look: Callable[[Engine, str], Token | None]) -> Token | None:
        key = hashlib.sha256(f"{look.__name__} {secret}".encode()).digest()
        at, token = self._known.get(key, (0.0, None))
        if token is not None and self._clock() - at < KNOWN_FOR:
            return token
        found = await self._ask(look, secret)
        self._known.pop(key, None)
        if found is not None:
            self._known[key] = self._clock(), found
        while len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        return found

    async def _ask(self, look: Callable[[Engine, str], Token | None], secret: str) -> Token | None:
        if self.engine.capabilities.blocking:
            return await asyncio.to_thread(look, self.engine, secret)
        return look(self.engine, secret)

    def forget(self) -> None:
        """Ask the store again, for what just ended here."""
        self._known.clear()


class Authentication:
    """The middleware: `scope["user"]` is the principal, whose name stands in the audit."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self.app: ASGIApp = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self.app(scope, receive, send)
            return
        principal = await self._principal(dict(scope["headers"]))
        scope["user"] = principal
        with audit.acting(principal.name):
            await self.app(scope, receive, send)

    async def _principal(self, headers: dict[bytes, bytes]) -> Principal:
        given = (headers.get(name, b"").decode("latin-1") for name in (b"authorization", b"cookie"))
        try:
            return await self._authenticator.principal(*given)
        except EngineUnavailable:  # probes must still be answered
            problem = "the store that knows the tokens cannot be reached"
            return Principal("anonymous", frozenset({Action.PUBLIC}), problem=problem)


def principal_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Principal:
    """Who makes this request. A request that passed no middleware is nobody's."""
    found = connection.scope.get("user")
    return found if isinstance(found, Principal) else Principal("nobody", frozenset())


async def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """The guard of all routes: who asks may do what the route says it does.

    A coroutine, although it waits for nothing: Litestar would run a plain function in a thread.
    """
    right = RIGHTS.get(str(handler.opt.get("action", "")))
    if right is None:
        raise Forbidden("this route does not say what it does, so nobody may use it")
    principal_of(connection).check(right)


def check_raw(principal: Principal, engine: Engine, queue: str, ids: list[str]) -> None:
    """Let somebody see these messages as they are; it stands in the audit that they did."""
    principal.check(Action.RAW)
    audit.note(engine, "raw", queue, len(ids), ids=ids[:50])


# --- the session of a browser --------------------------------------------------------------------


def begin_session(engine: Engine, token_id: str) -> str:
    """A secret that stands for this token for 12 hours at most; the store keeps its hash.

    Raises Unauthorized without a token, and RateLimited for one that logs in all the time.
    """
    token = tokens.find(engine, token_id)
    if token is None:
        raise Unauthorized("a session needs a token: send it as a bearer token")
    rate, burst = _LOGINS
    if wait := engine.records.take(LOGIN, token_id, 1, rate=rate, burst=burst):
        raise RateLimited(f"{token.name} logs in too often", retry_after=wait / 1_000)
    left = SESSION_TTL if token.expires is None else min(SESSION_TTL, token.expires - engine.now())
    secret = secrets.token_urlsafe(32)
    engine.records.put(SESSION, tokens.digest_of(secret), token_id.encode(), ttl=max(1, left))
    return secret


def token_of_session(engine: Engine, secret: str) -> Token | None:
    """The token behind a session; one that was revoked takes its sessions along."""
    record = engine.records.get(SESSION, tokens.digest_of(secret))
    return None if record is None else tokens.find(engine, record.value.decode())


def end_session(engine: Engine, cookie: str) -> bool:
    """Whether there was one."""
    secret = _session_in(cookie)
    return bool(secret) and engine.records.delete(SESSION, tokens.digest_of(secret))


def session_cookie(secret: str, *, secure: bool) -> str:
    """The Set-Cookie header of a session; of "" the one that ends it.

    No script sees it, and no other site can send it.
    """
    age = SESSION_TTL // 1_000 if secret else 0
    end = "; Secure" if secure else ""
    return f"{COOKIE}={secret}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{end}"


def _session_in(cookie: str) -> str:
    if not cookie:
        return ""
    try:
        found = SimpleCookie(cookie).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None and len(found.value) <= 100 else ""
