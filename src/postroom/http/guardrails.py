"""What every request passes before anybody looks at it: its host, its origin, its pace; and what every
response carries. One ASGI middleware around the whole application, which knows no route.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from litestar.enums import ScopeType

from postroom.http.access import Access
from postroom.http.problems import REQUEST_ID, document
from postroom.policy import Rate
from postroom.records import Bucket

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Message, Receive, Scope, Send

Headers = dict[bytes, bytes]

#: Nothing from elsewhere, nothing inline, and nobody may frame us.
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    b"content-security-policy": CSP.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}
#: Unless a route says otherwise: what it shows is of this moment and for this person.
_NO_STORE = b"no-store"
_HSTS = b"max-age=31536000"
_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([\w.-]+))(?::\d{1,5})?", re.ASCII)
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
#: So many clients are told apart; of more, the one longest not seen is forgotten.
_CLIENTS = 10_000
#: So many spellings of the host are known at sight.
_HOSTS = 100


class Hosts:
    """The names under which this server answers.

    A page that rebinds its own DNS name to our address still sends that name. So any IP address is fine,
    and of names only those of this machine and those given; "*" allows all, for who knows better.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._any = "*" in (allowed := [name.lower().rstrip(".") for name in allowed])
        self._names = {"localhost", os.uname().nodename.lower(), *allowed}
        #: Headers that were allowed before: nearly every request has the same.
        self._seen: set[str] = set()

    def allow(self, header: str) -> bool:
        if header in self._seen:
            return True
        name = host_of(header)
        allowed = name is not None and (self._any or name in self._names or _is_address(name))
        if allowed and len(self._seen) < _HOSTS:
            self._seen.add(header)
        return allowed


def host_of(header: str) -> str | None:
    """The name in a Host header, without the port; None if it is no host at all."""
    match = _HOST.fullmatch(header)
    return (match[1] or match[2]).lower().rstrip(".") if match else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_foreign(method: str, headers: Headers) -> bool:
    """Whether a page of somebody else's makes a browser change something here (CSRF), or ask for it.

    A browser says so in Sec-Fetch-Site, an old one in Origin; a program that says neither is no browser.
    A bearer token is proof enough: no browser adds one by itself. Such a page could not read an answer, but
    where nobody needs a token it could have us search, and note raw looks, as often as it likes: so it may
    only lead here, by a link.
    """
    if headers.get(b"authorization", b"")[:7].lower() == b"bearer ":
        return False
    site = headers.get(b"sec-fetch-site")
    if method in _SAFE:
        linked = headers.get(b"sec-fetch-mode", b"navigate") == b"navigate"
        return site in (b"cross-site", b"same-site") and not linked
    if site is not None:
        return site not in (b"same-origin", b"none")
    origin = headers.get(b"origin")
    if origin is None:
        return False
    return origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower()


class Pace:
    """A bucket for each client: `rate` in the long run, `burst` at once. Bounded; of this process."""

    def __init__(
        self, rate: Rate, burst: int, *, clients: int = _CLIENTS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._burst, self._most, self._clock = rate, burst, clients, clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, client: str) -> int:
        """0, or how long the client has to wait (ms)."""
        now = int(self._clock() * 1_000)
        kept = self._buckets.pop(client, None)
        bucket = Bucket.of(None if kept is None else kept.pack(), now, self._rate, self._burst)
        wait = bucket.missing(1, self._rate)
        self._buckets[client] = bucket if wait else bucket.less(1, self._rate)
        while len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return wait

    def __len__(self) -> int:
        return len(self._buckets)


def client_of(address: str) -> str:
    """Who is behind an address: an IPv6 customer has a whole /64."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:100]
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


class Guardrails:
    """The middleware. Refusals are problem details, like every error of this door."""

    def __init__(self, app: ASGIApp, hosts: Hosts, pace: Pace | None = None) -> None:
        self.app: ASGIApp = app
        self._hosts, self._pace = hosts, pace

    def __getattr__(self, name: str) -> Any:
        return getattr(self.app, name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self.app(scope, receive, send)
            return
        send = _with_headers(send, secure=scope.get("scheme") == "https")
        refusal = self._refusal(scope)
        if refusal is None:
            await self.app(scope, receive, send)
        else:
            await Access(refusal)(scope, receive, send)  # it has an id and a line in the log as every other

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = dict(scope["headers"])
        if not self._hosts.allow(headers.get(b"host", b"").decode("latin-1")):
            return Refusal(421, "wrong_host", "This server is not known under this name: see allowed hosts.")
        address, _ = scope.get("client") or ("", 0)  # behind a Unix socket all are one
        wait = 0 if self._pace is None else self._pace.take(client_of(address))
        if wait:
            detail = "This client asks faster than the server allows."
            return Refusal(429, "rate_limited", detail, retry_after=wait)
        if is_foreign(str(scope.get("method", "")), headers):
            return Refusal(403, "foreign_origin", "A page of another origin may only link to what is here.")
        return None


class Refusal(msgspec.Struct, frozen=True):
    """An answer given before the application is asked: a problem document (RFC 9457)."""

    status: int
    code: str
    detail: str
    retry_after: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = str(dict(scope)[REQUEST_ID])
        body = msgspec.json.encode(document(self.status, self.code, self.detail, request_id))
        headers = [(b"content-type", b"application/problem+json"), (b"content-length", b"%d" % len(body))]
        if self.retry_after:
            headers.append((b"retry-after", b"%d" % math.ceil(self.retry_after / 1_000)))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})


def _with_headers(send: Send, *, secure: bool) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message["headers"])
            there = {name.lower() for name, _ in headers}
            ours = SECURITY_HEADERS | {b"cache-control": _NO_STORE}
            if secure:
                ours[b"strict-transport-security"] = _HSTS
            headers += [item for item in ours.items() if item[0] not in there]
            message["headers"] = headers
        await send(message)

    return sending
