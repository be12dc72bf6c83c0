"""Asking a platform for its numbers: what it may answer, and how long to leave it alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

#: What guards the calls to a platform, by its name. A breaker of Postroom fits: `Breakers(room).__getitem__`.
Guard = Callable[[str], AbstractContextManager[object]]


def unguarded(platform: str) -> AbstractContextManager[object]:
    return nullcontext()


class Numbers(NamedTuple):
    clicks: int
    sales: int


class RateLimited(Exception):
    """The platform wants to be left alone; `after` is what it said (seconds), None if it said nothing."""

    def __init__(self, after: float | None = None) -> None:
        super().__init__("the platform limits the rate")
        self.after = after


class Platform:
    """A platform that is not there: it answers what it was told to, in order, the last answer for ever."""

    def __init__(self, answers: dict[str, list[Numbers | Exception | None]]) -> None:
        self._answers = answers
        self.asked: list[str] = []

    def ask(self, post: str) -> Numbers | None:
        self.asked.append(post)
        answers = self._answers[post]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Fetcher:
    """The numbers of a post; None while the platform has none yet."""

    def __init__(self, platforms: dict[str, Platform], guard: Guard = unguarded) -> None:
        self._platforms = platforms
        self._guard = guard

    def fetch(self, platform: str, post: str) -> Numbers | None:
        with self._guard(platform):
            return self._platforms[platform].ask(post)


def adaptive_delay(attempt: int, said: float | None, *, first: float, most: float) -> float:
    """How long to leave a platform alone: what it said, else longer with every attempt."""
    return min(most, said if said is not None else first * 2**attempt)
