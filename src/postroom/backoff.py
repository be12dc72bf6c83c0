"""How long to wait before the next attempt: "5s", "2^n * 5s", a cap, full jitter. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.duration import MAX_SPAN, format_duration, milliseconds
from postroom.errors import InvalidInput

if TYPE_CHECKING:
    import random

_EXPONENTIAL = re.compile(r"\s*(\d+(?:\.\d+)?)\s*\^\s*n\s*\*\s*(.+)", re.ASCII)
#: Beyond this exponent every sensible backoff has met its cap; it keeps the power finite.
_MAX_EXPONENT = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """factor^n · unit, at most `cap`; n counts earlier attempts from 0. All spans in milliseconds."""

    unit: int
    factor: float = 1.0
    cap: int = MAX_SPAN

    @classmethod
    def parse(cls, text: str, cap: int = MAX_SPAN) -> Backoff:
        """Read "5s" (constant) or "2^n * 5s" (exponential, first wait 5 s)."""
        if not isinstance(text, str):
            raise InvalidInput(f'backoff: expected text such as "2^n * 5s", not {text!r}')
        match = _EXPONENTIAL.fullmatch(text)
        factor, unit = (float(match[1]), match[2]) if match else (1.0, text)
        if factor < 1 or not math.isfinite(factor):
            raise InvalidInput(f"backoff: {text!r} would shrink; the factor must be at least 1")
        return cls(unit=milliseconds(unit, "backoff"), factor=factor, cap=cap)

    def delay(self, attempt: int, jitter: random.Random | None = None) -> int:
        """The wait after `attempt` earlier ones; with `jitter`, evenly between 0 and that wait.

        Full jitter spreads a crowd of failures over the whole wait instead of sending it back at once.
        """
        try:
            wait = self.unit * self.factor ** min(attempt, _MAX_EXPONENT)
        except OverflowError:
            wait = self.cap
        wait = min(wait, self.cap)
        return math.ceil(jitter.uniform(0, wait) if jitter else wait)

    def __str__(self) -> str:
        unit = format_duration(self.unit)
        factor = int(self.factor) if self.factor.is_integer() else self.factor
        return unit if factor == 1 else f"{factor}^n * {unit}"
