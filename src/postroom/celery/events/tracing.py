"""The trace that an event belongs to, when the program that publishes it has OpenTelemetry.

Nothing is imported for its sake: a program that never loaded OpenTelemetry has no span.
"""

from __future__ import annotations

import sys


def current() -> str:
    """The W3C `traceparent` of the span that is current here; "" when there is none."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return ""
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return ""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"
