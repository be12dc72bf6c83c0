"""The client of the Redis engine: scripts, single commands and blocking ones; bytes in, bytes out.

It raises errors of ours only. A command is done at most once: see `pool`. Whether a call that failed
may have been done all the same, `faults.is_uncertain(error)` tells.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self, cast

from redis import exceptions as theirs

from postroom.engines.redis import checks
from postroom.engines.redis.faults import REDIS_ERRORS, fault, is_busy
from postroom.engines.redis.routes import Argument, Route, pack, route
from postroom.engines.redis.urls import Settings
from postroom.errors import Closed

#: How much later than its timeout a blocking command may answer. The server is up to 0.1 s late by
#: itself; a connection that is silent for longer than this is half-open.
BLOCK_GRACE = 1.0
#: A server that is busy with a long script is asked again after so long (seconds).
_BUSY_PAUSE = 0.1


class Script(NamedTuple):
    """A Lua script; its sha is the SHA-1 of the text, in hex."""

    name: str
    text: str
    sha: str

    @classmethod
    def of(cls, name: str, text: str) -> Self:
        return cls(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


class Client:
    """All connections of one engine. Thread-safe; a child of a fork gets connections of its own."""

    def __init__(self, settings: Settings) -> None:
        """Connects when first used; `check` says whether what is there will do."""
        self.settings = settings
        self.where: str = settings.where
        self._route: Route = route(settings)
        self._pid = os.getpid()
        self._closed = False

    def __repr__(self) -> str:
        return f"Client({self.where})"

    def run(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
        """What the script returns, run where the first key lives. All keys share one hash tag."""
        return self._run(self._call, script, keys, args)

    def run_replicated(
        self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]
    ) -> tuple[Any, int]:
        """The same, and how many replicas have all that was written until then.

        It waits for one, up to `replication_timeout`, on a connection for those who wait: while a
        replica is away, other calls do not wait for these.
        """
        answer, replicas = self._run(self._call_and_wait, script, keys, args)
        return answer, replicas

    def _run(
        self,
        call: Callable[[bytes, Sequence[Argument]], Any],
        script: Script,
        keys: Sequence[bytes],
        args: Sequence[Argument],
    ) -> Any:
        try:
            return call(keys[0], ("EVALSHA", script.sha, len(keys), *keys, *args))
        except theirs.NoScriptError:  # not run then: a new server, or somebody flushed the scripts
            pass
        try:
            return call(keys[0], ("EVAL", script.text, len(keys), *keys, *args))
        except theirs.NoScriptError as error:
            raise fault(error, self.where) from error

    def command(self, *args: Argument, key: bytes | None = None) -> Any:
        """The answer to one command. In a cluster it goes to the node of `key`, or to any."""
        return self._call(key, args)

    def commands(self, commands: Sequence[tuple[bytes, Sequence[Argument]]]) -> list[Any]:
        """The answers to many single commands, in few round trips; each with the key that says where it goes.

        Only for questions: when one fails, nothing is known of the others.
        """
        packed = [(key, pack(args)) for key, args in commands]
        return cast("list[Any]", self._translated(lambda route: route.ask_each(packed)))

    def block(self, *args: Argument, timeout: float, key: bytes | None = None) -> Any:
        """The answer to a command that waits up to `timeout` seconds (as its arguments say), else None.

        It has a connection of its own, so that no other call waits for it. One that is silent for
        longer than the timeout is taken for broken: EngineUnavailable. After `close`: Closed.
        In a cluster it goes to the node of `key`, or else of the first key that it names.
        """
        if timeout <= 0:
            raise ValueError("a blocking command without a timeout would wait on a broken connection forever")
        return self._call(key or _first_key(args), args, block=timeout + BLOCK_GRACE)

    def check(self) -> checks.Server:
        """Connect and see whether this server will do; ConfigError or EngineUnavailable if not."""
        return checks.check(self)

    def close(self) -> None:
        """Give up all connections; calls that are under way end with an error. Twice is fine."""
        self._closed = True
        self._route.close()

    def reset(self) -> None:
        """After a fork, in the child: new connections. The parent's are left as they are."""
        self._route = route(self.settings)
        self._pid = os.getpid()

    # --- one call ---------------------------------------------------------------------------

    def ask_all(self, *args: Argument) -> list[Any]:
        """The answers of all servers that hold data: of a cluster all primaries."""
        packed = pack(args)
        return cast("list[Any]", self._translated(lambda route: route.ask_all(packed)))

    def _call(self, key: bytes | None, args: Sequence[Argument], block: float | None = None) -> Any:
        packed = pack(args)
        return self._translated(lambda route: route.ask(key, packed, block))

    def _call_and_wait(self, key: bytes, args: Sequence[Argument]) -> Any:
        """Both in one sending. WAIT goes by what its own connection has seen of the server's log."""
        span, settings = self.settings.replication_timeout, self.settings
        packed = pack(args) + pack(("WAIT", 1, int(span * 1_000)))
        block = max(settings.socket_timeout, span + BLOCK_GRACE)
        return self._translated(lambda route: route.ask(key, packed, block, answers=2))

    def _translated(self, ask: Callable[[Route], Any]) -> Any:
        if self._pid != os.getpid():
            self.reset()
        if self._closed:
            raise Closed("the engine is closed")
        try:
            return self._patiently(ask)
        except theirs.NoScriptError:
            raise  # for `run`
        except REDIS_ERRORS as error:
            if self._closed:
                raise Closed("the engine was closed during this call") from error
            ours = fault(error, self.where)
            raise ours from ours.__cause__

    def _patiently(self, ask: Callable[[Route], Any]) -> Any:
        """Ask again while the server is busy with somebody's long script, which has changed nothing of ours.

        No longer than an answer may take anyway.
        """
        end = 0.0
        while True:
            try:
                return ask(self._route)
            except theirs.ResponseError as error:
                now = time.monotonic()
                end = end or now + self.settings.socket_timeout
                if now > end or self._closed or not is_busy(error):
                    raise
            time.sleep(_BUSY_PAUSE)


def _first_key(args: Sequence[Argument]) -> bytes | None:
    """The first key of BLPOP and its like, or of XREAD … STREAMS."""
    words = [word.upper() if isinstance(word, str) else word for word in args]
    place = words.index("STREAMS") + 1 if "STREAMS" in words else 1
    key = args[place] if place < len(args) else None
    return key if isinstance(key, bytes) else str(key).encode() if key is not None else None
