"""What Redis and its client report, as errors of ours: each says where, why, and what to do."""

from __future__ import annotations

import re
import ssl
from functools import cache

from redis import exceptions as theirs

from postroom import errors
from postroom.errors import ConfigError, EngineBusy, EngineUnavailable, PostroomError, QueueFull

#: With this word begins an error that one of our own scripts raised: POSTROOM <code> <text>.
SCRIPT_MARK = "POSTROOM"

_FULL = "the server is at its maxmemory; nothing was put: let consumers drain it or give it more memory"
_BUSY = "the server is busy with somebody's long script; nothing was changed, try again"
_LOADING = "the server is still loading its data; nothing was changed, try again"
_REPLICA = "this is a replica, which takes no writes; nothing was changed: a failover may be under way"
_DOWN = "the cluster does not serve this slot at the moment; nothing was changed, try again"
_TRY_AGAIN = "the keys are just being moved to another node; nothing was changed, try again"
_CROSS_SLOT = "the keys of one call live in different slots; nothing was changed"
_UNBLOCKED = "the server became a replica; whether it was done is not known: repeat it with the same id"
_NO_REPLY = "no answer; whether it was done is not known: repeat it with the same id"
_PASSWORD = "the user name or the password is wrong, or one is missing: check the URL"  # noqa: S105 — a text
_NO_DB = "there is no such database: check the number in the URL (a cluster has only 0)"
_NO_CLUSTER = "this server is not a cluster: use redis://"
_PLAIN_PORT = "this port does not speak TLS: use redis:// instead of rediss://, or name the TLS port"
_UNTRUSTED = "its certificate is not trusted: name the authority in ssl_ca_certs, and check the host name"


class NoReply(theirs.ConnectionError):
    """The command went out and no answer came back: it may have been done."""


class NotSent(theirs.ConnectionError):
    """The connection broke before the whole command was sent, so it was not done."""


_Fault = tuple[type[PostroomError], str]

_BY_CLASS: list[tuple[type[Exception], _Fault]] = [
    (NoReply, (EngineUnavailable, _NO_REPLY)),
    (theirs.AuthenticationError, (ConfigError, _PASSWORD)),
    (theirs.AuthenticationWrongNumberOfArgsError, (ConfigError, _PASSWORD)),
    (theirs.BusyLoadingError, (EngineUnavailable, _LOADING)),
    (theirs.ReadOnlyError, (EngineUnavailable, _REPLICA)),
    (theirs.ClusterDownError, (EngineUnavailable, _DOWN)),  # a primary that is away is one of these
    (theirs.TryAgainError, (EngineUnavailable, _TRY_AGAIN)),
    (theirs.ClusterCrossSlotError, (EngineUnavailable, _CROSS_SLOT)),
]

#: So begins every answer of a server in which a script has run for longer than busy-reply-threshold (5 s).
_SCRIPT_RUNS = "BUSY "

#: So begins the answer of a server that became a replica, to whoever was waiting for something.
_WAIT_ENDED = "UNBLOCKED "

#: Replies for which the client has no class of its own (or only newer ones have), by their beginning.
_BY_TEXT: list[tuple[str, _Fault]] = [
    (_SCRIPT_RUNS, (EngineBusy, _BUSY)),
    ("DB index is out of range", (ConfigError, _NO_DB)),
    ("SELECT is not allowed in cluster mode", (ConfigError, _NO_DB)),
    ("This instance has cluster support disabled", (ConfigError, _NO_CLUSTER)),
    (_WAIT_ENDED, (EngineUnavailable, _UNBLOCKED)),
]

#: `redis.exceptions` says it in two unrelated trees; the second is raised for odd replies of a server.
REDIS_ERRORS = (theirs.RedisError, theirs.RedisClusterException)

#: A renamed AUTH is "unknown", and the reply quotes what came with it.
_QUOTED_ARGUMENTS = re.compile(r",? ?with args beginning with.*", re.DOTALL)

#: Redis appends it to an error that a script raised instead of returning it.
_PLACE_IN_SCRIPT = re.compile(r" script: [0-9a-f]{40}, on @user_script:\d+\.$")


def fault(error: Exception, where: str) -> PostroomError:
    """What to raise instead of the client's error, which becomes its cause."""
    said = _QUOTED_ARGUMENTS.sub("", str(error))
    ours = _own(said) or _oom(error, said, where) or _forbidden(error, said, where) or _tls(error, where)
    if ours is None:
        kind, advice = _find(error, said)
        ours = kind(f"{where}: {advice} (Redis: {said})" if advice else f"{where}: {said}")
    if said == str(error):
        ours.__cause__ = error
    else:
        ours.__suppress_context__ = True  # it would print what we left out
    return ours


def is_uncertain(error: BaseException) -> bool:
    """Whether what this error ended may have been done all the same."""
    cause = error.__cause__
    return isinstance(cause, NoReply) or str(cause).startswith(_WAIT_ENDED)


def is_busy(error: Exception) -> bool:
    """Whether the server did not even look at the command, because a script runs."""
    return str(error).startswith(_SCRIPT_RUNS)


def _find(error: Exception, said: str) -> _Fault:
    for theirs_class, found in _BY_CLASS:
        if isinstance(error, theirs_class):
            return found
    return next((found for start, found in _BY_TEXT if said.startswith(start)), (EngineUnavailable, ""))


def _own(said: str) -> PostroomError | None:
    """The error that our script raised, by its code."""
    mark, _, rest = said.partition(" ")
    if mark != SCRIPT_MARK:
        return None
    code, _, text = _PLACE_IN_SCRIPT.sub("", rest).partition(" ")
    return _by_code().get(code, EngineUnavailable)(text)


@cache
def _by_code() -> dict[str, type[PostroomError]]:
    # A verdict is a handler's, and PartialPut takes more than a text; neither comes from a script.
    return {
        kind.code: kind
        for kind in vars(errors).values()
        if isinstance(kind, type)
        and issubclass(kind, PostroomError)
        and not issubclass(kind, errors.Verdict | errors.PartialPut)
    }


def _oom(error: Exception, said: str, where: str) -> QueueFull | None:
    known = getattr(theirs, "OutOfMemoryError", ())
    if isinstance(error, known) or said.startswith("OOM "):
        return QueueFull(f"{where}: {_FULL}", reason="memory")
    return None


def _forbidden(error: Exception, said: str, where: str) -> ConfigError | None:
    """Which permission the user lacks; Redis names the command, key or channel."""
    in_script = "ACL failure in script" in said or "The user executing the script can't" in said  # 7.2, 7.0
    if in_script or isinstance(error, theirs.NoPermissionError | theirs.AuthorizationError):
        return ConfigError(f"{where}: the user lacks a permission: {said.strip()} (see ACL SETUSER)")
    return None


def _tls(error: Exception, where: str) -> ConfigError | None:
    cause = error.__cause__ or error.__context__
    if not isinstance(cause, ssl.SSLError):
        return None
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ConfigError(f"{where}: {_UNTRUSTED} ({cause.verify_message})")
    if cause.reason in ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"):
        return ConfigError(f"{where}: {_PLAIN_PORT}")
    return None
