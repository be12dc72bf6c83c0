"""What an error looks like over HTTP: problem details (RFC 9457) with our stable codes.

    {"type": "urn:postroom:error:queue_full", "title": "queue full", "status": 429, "detail": "…",
     "code": "queue_full", "request_id": "…"}

An error that we did not foresee says nothing about itself but the request id, under which the log has it.
"""

from __future__ import annotations

import difflib
import logging
import math
import re
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from postroom.errors import LeaseLost, PartialPut, PostroomError, QueueFull, Uncertain

log: logging.Logger = logging.getLogger(__name__)

#: Where a request carries its id; see `access`.
REQUEST_ID = "postroom.request_id"
#: Set where a client has hung up before its request was read or answered.
HUNG_UP = "postroom.hung_up"
MEDIA = "application/problem+json"

#: By error code; an error without a row has the status of its parent.
STATUSES = {
    "error": 500,
    "invalid_input": 400,
    "body_too_large": 413,
    "missing_extra": 501,
    "refused": 422,
    "queue_full": 429,
    "rate_limited": 429,
    "partial_put": 503,
    "uncertain": 503,
    "not_found": 404,
    "conflict": 409,
    "unauthorized": 401,
    "forbidden": 403,
    "lease_lost": 409,
    "undecodable": 422,
    "closed": 503,
    "engine_unavailable": 503,
    "later": 503,
}
#: What HTTP itself refuses, before any of our verbs is asked.
_BY_STATUS = {
    400: "invalid_input",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "body_too_large",
    415: "unsupported_media_type",
    429: "rate_limited",
}
#: A full queue says nothing about when it has room again (seconds).
_RETRY_FULL = 1
#: Names that other systems have for what we call differently.
OURS = {
    "ack_timeout_seconds": "ack_timeout",
    "args": "body",
    "countdown": "delay",
    "custom_ack_timeout": "ack_timeout",
    "custom_max_attempts": "max_attempts",
    "data": "body",
    "eta": "at",
    "message": "body",
    "payload": "body",
    "queue_name": "queue",
    "retries": "max_attempts",
    "run_at": "at",
    "task": "kind",
    "type": "kind",
    "visibility_timeout": "ack_timeout",
}
#: How the functions of our routes call what was decoded of the body.
_BODY = "data"
_UNKNOWN = re.compile(r"unknown field `(.+?)`")

AnyRequest = Request[Any, Any, Any]


def request_id_of(request: AnyRequest) -> str:
    return str(dict(request.scope).get(REQUEST_ID, ""))


def status_of(error: PostroomError) -> int:
    if isinstance(error, LeaseLost) and error.outcome == "gone":
        return 410
    codes = (getattr(kind, "code", "") for kind in type(error).__mro__)
    return next(STATUSES[code] for code in codes if code in STATUSES)


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What went wrong (RFC 9457): `code` is stable and for programs, `detail` for people.

    A lost lease has its `outcome` (lost or gone), a full queue a `reason` (capacity or memory), an uncertain
    put the `ids` to repeat, a partial one what was `accepted` and `refused`.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    outcome: str | None = None
    reason: str | None = None
    ids: list[str] | None = None
    accepted: list[Any] | None = None
    refused: list[str] | None = None


def document(status: int, code: str, detail: str, request_id: str, **more: Any) -> Problem:
    """The whole of a problem; `more` are fields beside those that every one has."""
    return Problem(
        type=f"urn:postroom:error:{code}",
        title=code.replace("_", " "),
        status=status,
        detail=detail,
        code=code,
        request_id=request_id,
        **more,
    )


def problem(
    request: AnyRequest,
    status: int,
    code: str,
    detail: str,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Response[bytes]:
    """The answer itself; `more` are fields beside the usual ones."""
    content = msgspec.json.encode(document(status, code, detail, request_id_of(request), **more))
    return Response(content, status_code=status, media_type=MEDIA, headers=headers or {})


def of_ours(request: AnyRequest, error: PostroomError) -> Response[bytes]:
    """An error that the domain raises on purpose."""
    status = status_of(error)
    if status == 500:
        return of_anything(request, error)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if status == 429:
        wait = _RETRY_FULL if isinstance(error, QueueFull) else getattr(error, "retry_after", _RETRY_FULL)
        headers["Retry-After"] = str(max(1, math.ceil(wait)))
    return problem(request, status, error.code, str(error), headers, **_details(error))


def _details(error: PostroomError) -> dict[str, Any]:
    if isinstance(error, LeaseLost):
        return {"outcome": str(error.outcome)}
    if isinstance(error, QueueFull):
        return {"reason": error.reason}
    if isinstance(error, Uncertain):
        return {"ids": error.ids}
    if isinstance(error, PartialPut):
        return {"accepted": error.accepted, "refused": [message.id for message in error.refused]}
    return {}


def of_http(request: AnyRequest, error: HTTPException) -> Response[bytes]:
    """What Litestar refuses: a path that is not there, input of the wrong shape."""
    status = error.status_code
    if status >= 500 and dict(request.scope).get(HUNG_UP):  # no failure of ours, and nobody reads this
        return problem(request, 400, "invalid_input", "the client hung up in the middle of its request")
    if status >= 500:
        return of_anything(request, error)
    code = (error.extra or {}).get("code") if isinstance(error.extra, dict) else None
    if isinstance(error, ValidationException):
        faults = [_fault(request, fault) for fault in error.extra or [] if isinstance(fault, dict)]
        detail = "; ".join(faults) or error.detail
    else:
        detail = error.detail
    return problem(
        request, status, code or _BY_STATUS.get(status, "error"), detail, dict(error.headers or {})
    )


def of_depth(request: AnyRequest, error: RecursionError) -> Response[bytes]:
    """JSON inside JSON, thousands of times: no decoder goes that far."""
    return problem(request, 400, "invalid_input", "the body is nested too deeply")


def _fault(request: AnyRequest, fault: dict[str, Any]) -> str:
    """One thing that is wrong with the input, in words, and which name of ours was meant."""
    text, key = str(fault.get("message", "")), fault.get("key")
    if found := _UNKNOWN.search(text):
        return unknown_field(found[1], _fields(request))
    if key == _BODY and text == repr(_BODY):  # nothing there to decode: a KeyError of Litestar's
        fields = ", ".join(_outermost(_kind_of_body(request)))
        about = f", and there are the fields {fields}" if fields else ""
        return f"the request has no body: a JSON object is expected{about}"
    if key == _BODY:  # the name of an argument in our code
        return f"the body of the request: {text}"
    return f"{key}: {text}" if key else text


def unknown_field(name: str, fields: list[str], what: str = "field") -> str:
    ours = OURS.get(name)
    close = [ours] if ours in fields else difflib.get_close_matches(name, fields, n=1, cutoff=0.5)
    others = f"there are {', '.join(fields)}" if fields else "there are none"
    return f"{name}: unknown {what}; {f'did you mean {close[0]}?' if close else others}"


def _fields(request: AnyRequest) -> list[str]:
    """The names that the body of this request may have, at any depth."""
    return sorted(_names(_kind_of_body(request)))


def _kind_of_body(request: AnyRequest) -> Any:
    parameter = request.route_handler.parsed_fn_signature.parameters.get(_BODY)
    return parameter.annotation if parameter else None


def _outermost(kind: Any) -> tuple[str, ...]:
    """The names of the fields that this kind of body has itself."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    return next(filter(None, map(_outermost, getattr(kind, "__args__", ()))), ())


def _names(kind: Any) -> set[str]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        inner = (_names(field.type) for field in msgspec.structs.fields(kind))
        return set(kind.__struct_fields__).union(*inner)
    return set().union(*map(_names, getattr(kind, "__args__", ())))


def of_anything(request: AnyRequest, error: Exception) -> Response[bytes]:
    """What nobody foresaw: the log has all of it, the client only where to look."""
    log.error("request failed", exc_info=error, extra={"event": "http.failed", **_where(request)})
    detail = "something went wrong here; the log of the server has it under this request id"
    return problem(request, 500, "error", detail)


def _where(request: AnyRequest) -> dict[str, Any]:
    return {"method": request.method, "path": request.scope["path"], "request_id": request_id_of(request)}


HANDLERS: dict[Any, Any] = {
    PostroomError: of_ours,
    HTTPException: of_http,
    RecursionError: of_depth,
    Exception: of_anything,
}
