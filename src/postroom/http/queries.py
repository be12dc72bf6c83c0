"""What stands behind the question mark: a parameter that a route does not know is refused, as a field is."""

from __future__ import annotations

from functools import cache
from typing import Any

from litestar import Request
from litestar.handlers import BaseRouteHandler
from litestar.params import QueryParameter

from postroom.errors import InvalidInput
from postroom.http.problems import unknown_field


async def check_query(request: Request[Any, Any, Any]) -> None:
    """Raises InvalidInput with the parameter that may have been meant: a slip must not change the answer."""
    if not request.query_params:
        return
    names = _names(request.route_handler)
    for name in request.query_params:
        if name not in names:
            raise InvalidInput(unknown_field(name, names, "parameter"))


@cache  # as many as there are routes
def _names(handler: BaseRouteHandler) -> list[str]:
    """What the route takes, and what it asks for takes, such as `raw`."""
    names, signature = list[str](), handler.parsed_fn_signature
    asked = [each for name, each in handler.resolve_dependencies().items() if name in signature.parameters]
    for takes in (signature, *(each.parsed_fn_signature for each in asked)):
        for parameter in takes.parameters.values():
            if isinstance(said := parameter.kwarg_definition, QueryParameter):
                names.append(said.name or parameter.name)
    return sorted(names)
