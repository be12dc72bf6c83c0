"""Live events over HTTP: one reader of the store for all who listen, and each of them bounded.

A thread reads (see `feeds`) and gives what it read to the event loop, four times a second at most.
Everything else happens in the loop, so nothing here is locked; and in small parts, so that who asks for
something else meanwhile does not wait until a thousand listeners are told.

An event has an id, HUB.NUMBER.TIME. Who comes back with it goes on behind that number; at another server,
or after a restart, a little before that time, so that what was sent in between comes (a line is known by
its queue and id). Who comes too late for what is kept is told by `reset` to load everything again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec
from litestar import Request, get
from litestar.params import FromQuery, HeaderParameter
from litestar.types import ASGIApp, HTTPResponseBodyEvent, Receive, Scope, Send

from postroom.engine import Engine
from postroom.errors import EngineUnavailable, InvalidInput
from postroom.http.auth import Authenticator, principal_of
from postroom.http.feeds import KEPT, LIFECYCLE, OVERDUE, TOPIC, WINDOW, Reader, Told, frame, read_feeds
from postroom.http.redaction import Redaction
from postroom.http.roles import Action
from postroom.ids import new_token
from postroom.limits import AUDIT

log: logging.Logger = logging.getLogger(__name__)

HEARTBEAT = 15.0
#: Events that wait for one client.
WAITING = 1_000
MAX_CLIENTS = 2_000
#: Topics that are followed at once: each is read for itself.
MAX_TOPICS = 50
#: So many clients are told before whatever else the loop has to do has its turn.
PART = 25
#: A client that takes nothing for so long is left (seconds).
SEND_PATIENCE = 30.0
#: How far before its time a resume at another server begins (ms): no reader is later than that.
_OVERLAP = 2_000
#: How long a client waits for its feeds to begin (seconds).
_PATIENCE = 30.0
#: How long who listens may do so without being asked for their right again (seconds).
_TRUSTED = HEARTBEAT
_ID = re.compile(r"([0-9a-f]{16})\.(\d{1,15})\.(\d{1,15})", re.ASCII)
_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx must not collect them
)


#: What is no event of any feed: a heartbeat, an outage.
_FOR_ALL = Told("", "", 0, "", b"")


class Client:
    """One who listens. What waits for it is bounded: one that does not keep up is told so, and that is it."""

    def __init__(self, feeds: frozenset[str], queues: frozenset[str], limit: int) -> None:
        self.feeds: frozenset[str] = feeds
        self.queues: frozenset[str] = queues
        self._limit = limit
        self._frames: deque[bytes] = deque()
        self._some = asyncio.Event()
        self.ended: bool = False

    def wants(self, told: Told) -> bool:
        if told is _FOR_ALL:
            return True
        return told.feed in self.feeds and (not self.queues or not told.queue or told.queue in self.queues)

    def give(self, frames: Sequence[bytes]) -> None:
        if self.ended or not frames:
            return
        if len(self._frames) + len(frames) > self._limit:
            self._frames.clear()
            self.end(
                frame("dropped", b'{"reason":"this client reads too slowly: come back with the last id"}')
            )
            return
        self._frames += frames
        self._some.set()

    def end(self, last: bytes = b"") -> None:
        """Nothing more comes after this."""
        if last and not self.ended:
            self._frames.append(last)
        self.ended = True
        self._some.set()

    async def next(self) -> bytes:
        """What has come meanwhile, at once; empty when it is over."""
        if not self._frames and not self.ended:
            self._some.clear()
            await self._some.wait()
        frames = b"".join(self._frames)
        self._frames.clear()
        return frames


class Feed:
    """What is kept of a feed for who comes back."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.kept: deque[Told] = deque()
        #: Complete since this moment, and behind this number.
        self.since: int = 0
        self.behind: int = 0

    def keep(self, told: Told) -> None:
        self.kept.append(told)
        if len(self.kept) > KEPT:
            gone = self.kept.popleft()
            self.since, self.behind = max(self.since, gone.at + 1), max(self.behind, gone.number)


class Hub:
    """All who listen in this process. Make one, and `close` it before the server waits for its clients."""

    def __init__(
        self,
        engine: Engine,
        redaction: Redaction | None = None,
        *,
        heartbeat: float = HEARTBEAT,
        window: float = WINDOW,
        waiting: int = WAITING,
    ) -> None:
        self._redaction = redaction or Redaction()
        self._engine, self._heartbeat, self._window, self._waiting = engine, heartbeat, window, waiting
        self.id: str = new_token()
        self._number = 0
        #: The engine's clock, seen from ours (ms).
        self._ahead = 0
        self._feeds: dict[str, Feed] = {}
        #: How many listen to each feed, or are about to.
        self._wanted: Counter[str] = Counter()
        self._clients: set[Client] = set()
        #: What is being told, oldest first: to whom still, and what.
        self._telling: deque[tuple[deque[Client], Sequence[tuple[Told, bytes]]]] = deque()
        self._reader: Reader | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._clients)

    async def join(
        self, feeds: frozenset[str], queues: frozenset[str] = frozenset(), last_id: str = ""
    ) -> Client:
        """Listen from now on, or from behind the id that was seen last."""
        if self._closed or len(self._clients) >= MAX_CLIENTS:
            raise EngineUnavailable("this server has as many listeners as it takes: try again later")
        self._wanted.update(feeds)
        try:
            await self._opened(feeds)
        except BaseException:
            self._wanted.subtract(feeds)
            raise
        client = Client(feeds, queues, self._waiting)
        client.give([self._hello(), *(self._missed(client, last_id) if last_id else [])])
        self._clients.add(client)
        return client

    async def _opened(self, feeds: frozenset[str]) -> None:
        opened = [self._feed(_home(feed)).opened for feed in sorted(feeds)]
        _, late = await asyncio.wait(set(opened), timeout=_PATIENCE)
        if late:
            raise EngineUnavailable("the store does not tell what happened: try again later")

    def leave(self, client: Client) -> None:
        client.end()
        if client in self._clients:
            self._clients.discard(client)
            self._wanted.subtract(client.feeds)

    def dismiss(self) -> None:
        """Send everybody away, and tell the reader to end."""
        self._closed = True
        for client in self._clients:
            client.end(frame("bye", b"{}"))
        if self._reader is not None:
            self._reader.stop()

    async def close(self) -> None:
        """The same, and wait for the reader."""
        self.dismiss()
        if self._reader is not None:
            await asyncio.to_thread(self._reader.join)

    def _hello(self) -> bytes:
        now = int(time.time() * 1_000) + self._ahead
        return b"retry: 2000\n" + frame("hello", msgspec.json.encode({"hub": self.id, "server_time": now}))

    def _feed(self, name: str) -> Feed:
        if name not in self._feeds:
            if self._reader is None:
                self._reader = self._start()
            if name.startswith(TOPIC):
                self._make_room(self._reader)
            self._feeds[name] = Feed()
            self._reader.ask(name)
        return self._feeds[name]

    def _make_room(self, reader: Reader) -> None:
        """A topic that nobody listens to any more gives way; it stays as long for who comes back."""
        topics = [name for name in self._feeds if name.startswith(TOPIC)]
        if len(topics) < MAX_TOPICS:
            return
        idle = [name for name in topics if not self._wanted[name] and self._feeds[name].opened.done()]
        if not idle:
            raise InvalidInput(f"topics: this server follows {MAX_TOPICS} at most")
        del self._feeds[idle[0]]
        reader.forget(idle[0])

    def _start(self) -> Reader:
        loop = asyncio.get_running_loop()

        def tell(**what: Any) -> None:
            if not self._closed:
                loop.call_soon_threadsafe(lambda: self._hear(**what))

        options = {"heartbeat": self._heartbeat, "window": self._window}
        return Reader(self._engine, tell, redaction=self._redaction, **options)

    # --- what the reader says -------------------------------------------------------------------

    def _hear(
        self,
        *,
        batch: Sequence[Told] = (),
        opened: str = "",
        since: int = 0,
        now: int = 0,
        away: bool = False,
    ) -> None:
        if opened:
            self._begin(self._feeds[opened], batch, since)
        elif batch:
            self._spread([self._keep(told) for told in batch if self._follows(told)])
        if now:
            self._ahead = now - int(time.time() * 1_000)
        if now and not opened:
            self._to_all(frame("heartbeat", msgspec.json.encode({"server_time": now})))
        if away:
            self._to_all(frame("away", b'{"reason":"the store cannot be reached; nothing is lost"}'))

    def _begin(self, feed: Feed, before: Sequence[Told], since: int) -> None:
        feed.since, feed.behind = since, self._number
        for told in before:
            feed.keep(told)
        feed.opened.set_result(None)

    def _follows(self, told: Told) -> bool:
        """Of a topic that has given way the reader may still tell a little."""
        feed = self._feeds.get(_home(told.feed))
        return feed is not None and feed.opened.done()

    def _keep(self, told: Told) -> tuple[Told, bytes]:
        self._number += 1
        told = told._replace(number=self._number)
        self._feeds[_home(told.feed)].keep(told)
        return told, self._frame(told)

    def _frame(self, told: Told) -> bytes:
        return frame(told.name, told.data, f"{self.id}.{told.number}.{told.at}")

    def _spread(self, batch: Sequence[tuple[Told, bytes]]) -> None:
        """Tell all who listen now, a part of them at a time, and each in the order of the batches."""
        if not self._telling:
            asyncio.get_running_loop().call_soon(self._tell_some)
        self._telling.append((deque(self._clients), batch))

    def _tell_some(self) -> None:
        clients, batch = self._telling[0]
        wanted: dict[tuple[frozenset[str], frozenset[str]], list[bytes]] = {}
        for _ in range(min(PART, len(clients))):
            client = clients.popleft()
            kind = client.feeds, client.queues
            if kind not in wanted:
                wanted[kind] = [made for told, made in batch if client.wants(told)]
            client.give(wanted[kind])
        if not clients:
            self._telling.popleft()
        if self._telling:
            asyncio.get_running_loop().call_soon(self._tell_some)

    def _to_all(self, made: bytes) -> None:
        self._spread([(_FOR_ALL, made)])

    # --- who comes back -------------------------------------------------------------------------

    def _missed(self, client: Client, last_id: str) -> list[bytes]:
        """What this client has not seen; a `reset` first if that is not all."""
        match = _ID.fullmatch(last_id)
        if match is None:
            return [_reset()]
        number, at = int(match[2]), int(match[3]) - _OVERLAP
        feeds = [self._feeds[name] for name in set(map(_home, client.feeds))]
        if match[1] == self.id and number and all(feed.behind <= number for feed in feeds):
            again = [told for feed in feeds for told in feed.kept if told.number > number]
            whole = True
        else:
            again = [told for feed in feeds for told in feed.kept if told.at >= at]
            whole = all(feed.since <= at for feed in feeds)
        wanted = [
            told for told in sorted(again, key=lambda told: (told.number, told.at)) if client.wants(told)
        ]
        room = self._waiting - 2  # beside the hello, and the reset
        whole = whole and len(wanted) <= room
        return [*([] if whole else [_reset()]), *map(self._frame, wanted[-room:])]


def _home(feed: str) -> str:
    """Where a feed is kept: reclaims and deaths are made of the lifecycle."""
    return LIFECYCLE if feed == OVERDUE else feed


def _reset() -> bytes:
    return frame("reset", b'{"reason":"not everything since the last id is kept: load again"}')


# ---- On the wire ----------------------------------------------------------------------------------


class EventStream:
    """The response to one client (ASGI): ends when the client goes, is too slow, or the hub closes."""

    def __init__(
        self,
        hub: Hub,
        client: Client,
        may: Callable[[], Awaitable[bool]] | None = None,
        *,
        patience: float = SEND_PATIENCE,
        trusted: float = _TRUSTED,
    ) -> None:
        self._hub, self._client, self._patience = hub, client, patience
        self._may, self._trusted, self._asked = may, trusted, time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(self._until_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            while frames := await self._client.next():
                if not await self._still():
                    frames = frame("bye", b'{"reason":"the token was revoked, or the session has ended"}')
                    self._client.end()
                body: HTTPResponseBodyEvent = {
                    "type": "http.response.body",
                    "body": frames,
                    "more_body": True,
                }
                async with asyncio.timeout(self._patience):  # not wait_for: that makes a task each time
                    await send(body)
            async with asyncio.timeout(self._patience):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.info("a listener read nothing for %s s", self._patience, extra={"event": "stream.stuck"})
        finally:
            gone.cancel()
            self._hub.leave(self._client)

    async def _still(self) -> bool:
        """Whether the client may listen, asked before something is sent; a heartbeat always comes."""
        if self._may is None or time.monotonic() - self._asked < self._trusted:
            return True
        self._asked = time.monotonic()
        return await self._may()

    async def _until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._client.end()


@get(
    "/events",
    opt={"action": "event.stream", "no_compression": True},
    media_type="text/event-stream",
    summary="Live events (SSE)",
)
async def events(
    request: Request[Any, Any, Any],
    topics: FromQuery[str] = "",
    queue: FromQuery[list[str] | None] = None,
    last_id: Annotated[str, HeaderParameter(name="Last-Event-ID")] = "",
) -> ASGIApp:
    """Events as they happen: `topics` (lifecycle, overdue, audit, topic:NAME), `queue` (repeatable).

    An event has an id; send the last one as `Last-Event-ID` to go on behind it. `heartbeat` has the
    server's time, `reset` says that not everything could be made up for, `dropped` that you read too slowly.
    """
    feeds = read_feeds(topics)
    may = _checked(request, {Action.READ, Action.AUDIT} if AUDIT in feeds else {Action.READ})
    hub: Hub = request.app.state.hub
    client = await hub.join(feeds, frozenset(queue or ()), last_id)
    return EventStream(hub, client, may)


def _checked(request: Request[Any, Any, Any], rights: set[Action]) -> Callable[[], Awaitable[bool]] | None:
    """Check these rights; how to ask for them again. None: nobody is asked here who they are."""
    authenticator: Authenticator | None = request.app.state.get("authenticator")
    if authenticator is None:
        return None
    for right in rights:
        principal_of(request).check(right)
    given = [request.headers.get(name, "") for name in ("authorization", "cookie")]

    async def may() -> bool:
        """A store that is away tells of nobody that they may not."""
        with contextlib.suppress(EngineUnavailable):
            return rights <= (await authenticator.principal(*given)).actions
        return True

    return may
