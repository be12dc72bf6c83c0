"""What every screen has in common: a terminal is left as it was found."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self


class Screen(Protocol):
    """Used with `with`."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Lines:
    """A screen that only prints: there is nothing to put back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
