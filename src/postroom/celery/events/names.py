"""Names of services, events and patterns: what may be said, and what matches what.

An event is named by words with dots between, such as `billing.invoice.paid`. In a pattern, as in AMQP, `*`
stands for one word and `#` for any number of them.
"""

from __future__ import annotations

import re

from postroom.errors import InvalidInput

_WORD = r"[A-Za-z0-9_-]+"
_SERVICE = re.compile(_WORD)
_EVENT = re.compile(rf"{_WORD}(\.{_WORD})*")
_PATTERN = re.compile(rf"({_WORD}|\*|#)(\.({_WORD}|\*|#))*")
#: Names that Celery gives by itself: two services called so would share their queues unawares.
_NOT_CHOSEN = ("celery", "__main__")
#: A queue is named after service and pattern, and AMQP gives a name 255 bytes.
LONGEST_SERVICE, LONGEST_EVENT = 50, 120


def check_service(name: object) -> str:
    """The name of a service, which must be one that somebody chose. Raises InvalidInput."""
    if not isinstance(name, str) or not name:
        raise InvalidInput(
            "events_app() needs the name of this service: without one, services would share a queue, "
            "and each event would reach only one of them"
        )
    if name in _NOT_CHOSEN:
        raise InvalidInput(f"service: {name!r} is no name of a service; choose one that no other service has")
    if not _SERVICE.fullmatch(name) or len(name) > LONGEST_SERVICE:
        raise InvalidInput(
            f"service: {name!r:.80} must be letters, digits, _ and -, at most {LONGEST_SERVICE}"
        )
    return name


def check_event(name: object) -> str:
    """The name of one event. Raises InvalidInput."""
    if not isinstance(name, str) or not _EVENT.fullmatch(name) or len(name) > LONGEST_EVENT:
        raise InvalidInput(
            f"event: {name!r:.150} must be words with dots between, such as 'billing.invoice.paid', "
            f"at most {LONGEST_EVENT} letters"
        )
    return name


def check_pattern(pattern: object) -> str:
    """An event, or a pattern of events. Raises InvalidInput."""
    if not isinstance(pattern, str) or not _PATTERN.fullmatch(pattern) or len(pattern) > LONGEST_EVENT:
        raise InvalidInput(
            f"handler: {pattern!r:.150} must name an event such as 'billing.invoice.paid', "
            "with * for one word and # for any number of them"
        )
    return pattern


def check_group(name: object) -> str:
    """The name of a queue for several events. Raises InvalidInput."""
    if not isinstance(name, str) or not _EVENT.fullmatch(name) or len(name) > LONGEST_EVENT:
        raise InvalidInput(f"group: {name!r:.150} must be words of letters, digits, _ and -")
    return name


def overlap(one: str, other: str) -> bool:
    """Whether there can be an event that both patterns mean."""
    return _overlap(one.split("."), other.split("."))


def _overlap(one: list[str], other: list[str]) -> bool:
    # One row at a time, as for an edit distance: patterns of 60 words with many # stay cheap.
    row = [True]
    row += [all(word == "#" for word in other[:length]) for length in range(1, len(other) + 1)]
    for first in one:
        above, row = row, [row[0] and first == "#"]
        for place, second in enumerate(other):
            if "#" in (first, second):
                # A # stands for nothing, or for one more word of the other side.
                row.append(above[place + 1] or row[place])
            else:
                row.append(above[place] and (first == second or "*" in (first, second)))
    return row[-1]
