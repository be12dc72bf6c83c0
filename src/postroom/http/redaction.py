"""What is shown of bodies, headers and failures: everything but secrets.

A value is hidden by the name it stands under, or by what it looks like. Who works on a message gets it
as it is; only looking is redacted, and looking at it raw is a right of its own, and audited.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from postroom.errors import ConfigError

HIDDEN = "[redacted]"
#: Deeper than this nothing is shown: no honest payload is, and recursion has an end.
_DEPTH = 50
#: A name that holds one of these, whatever stands around it: `db_password`, `X-Api-Key`, `refreshToken`.
_PARTS = (
    "password", "passwd", "passphrase", "secret", "token", "authorization", "credential", "cookie",
    "apikey", "accesskey", "privatekey", "signingkey", "encryptionkey", "cardnumber", "creditcard",
)  # fmt: skip
#: A name that is one of these, because longer ones that hold them are harmless: `pin`, but not `shipping`.
_WHOLE = frozenset({"pwd", "auth", "pin", "cvv", "cvc", "cvv2", "pan", "ssn", "card", "sessionid", "jwt"})
_SEPARATORS = re.compile(r"[\W_]+")

_DIGITS = re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w-])", re.ASCII)
#: The issuers that there are: a time in milliseconds or an order number must stay readable.
_ISSUER = re.compile(r"4|5[1-5]|2[2-7]|3[4-9]|30[0-5]|6")
#: What gives itself away, each with what of it may stay.
_LOOKS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), rf"\1 {HIDDEN}"),
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), HIDDEN),  # a JSON web token
    (re.compile(r"\bpr_[0-9a-f]{16}_[\w-]{43}"), HIDDEN),  # one of ours
    (re.compile(r"(://[^\s:/?#@]*):[^\s/?#@]+@"), rf"\1:{HIDDEN}@"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.DOTALL), HIDDEN),
)
#: `password=…` and `"token": "…"` inside text, such as a traceback, where quotes may be escaped: the name,
#: and the value behind it. Of escapes as many as four levels of quoting have: without a bound, text that
#: is nothing but backslashes would be looked through from each of them to its end.
_NAME = re.compile(r"""((?:\\{0,15}['"])?)(?<![\w-])([\w-]{2,64})\1\s{0,9}[=:]\s{0,9}""")
_VALUE = re.compile(
    r"""\\+"[^"\n]*"|\\+'[^'\n]*'|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'"""
    r"""|(?:(?:digest|token|apikey|negotiate)\s+)?[^\s,;&)}\]]+""",
    re.IGNORECASE,
)
#: Whose own pattern leaves the word and hides what follows.
_SCHEMES = ("bearer", "basic")


class Redaction:
    """Hides secrets in values and in text. Rules of one's own come on top of those that are always there.

    names     patterns of names, such as "iban" or "x-internal-*"; upper and lower case are one
    patterns  regular expressions for what is hidden wherever it stands
    """

    def __init__(self, names: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        self._names = [name.lower() for name in names]
        self._patterns = [_compiled(pattern) for pattern in patterns]

    @property
    def rules(self) -> dict[str, list[str]]:
        """By which rules something is hidden, for people: names that hold one of the `parts`, that are one
        of `whole`, or that match one of `names`; and whatever matches one of the `patterns`."""
        patterns = [pattern.pattern for pattern in self._patterns]
        return {"parts": sorted(_PARTS), "whole": sorted(_WHOLE), "names": self._names, "patterns": patterns}

    def hides(self, name: str) -> bool:
        """Whether what stands under this name is a secret."""
        plain = _SEPARATORS.sub("", name).lower()
        if plain in _WHOLE or any(part in plain for part in _PARTS):
            return True
        return any(fnmatch.fnmatchcase(name.lower(), mine) for mine in self._names)

    def value(self, value: Any, _depth: int = 0) -> Any:
        """A decoded body as it may be shown: a copy, never the value itself."""
        if _depth > _DEPTH:
            return HIDDEN
        if isinstance(value, Mapping):
            return {key: self._under(key, each, _depth + 1) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each, _depth + 1) for each in value]
        if isinstance(value, str):
            return self.text(value, _depth + 1)
        if isinstance(value, bytes | bytearray):
            return HIDDEN  # nobody can tell what it holds
        if isinstance(value, int | float) and not isinstance(value, bool) and _is_card(str(value)):
            return HIDDEN
        return value

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {name: HIDDEN if self.hides(name) else self.text(text) for name, text in headers.items()}

    def texts(self, value: Any) -> Any:
        """The same where names hide nothing, because they are those of our own fields, or of queues."""
        if isinstance(value, Mapping):
            return {key: self.texts(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.texts(each) for each in value]
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str, _depth: int = 0) -> str:
        """Text without what looks like a secret, or is assigned to the name of one; JSON as what it says."""
        inner = _json_in(text)
        if inner is None:
            return self._plain(text)
        shown = self.value(inner, _depth + 1)
        return self._own(text if shown == inner else msgspec.json.encode(shown).decode())

    def _plain(self, text: str) -> str:
        text = self._unassigned(text)
        for look, shown in _LOOKS:
            text = look.sub(shown, text)
        return self._own(_DIGITS.sub(lambda match: HIDDEN if _is_card(match[0]) else match[0], text))

    def _own(self, text: str) -> str:
        for pattern in self._patterns:
            text = pattern.sub(HIDDEN, text)
        return text

    def _under(self, name: Any, value: Any, depth: int) -> Any:
        # That there is nothing is no secret, and good to know.
        if isinstance(name, str) and self.hides(name) and value not in (None, "", [], {}):
            return HIDDEN
        return self.value(value, depth)

    def _unassigned(self, text: str) -> str:
        parts, end = list[str](), 0
        for name in _NAME.finditer(text):
            value = _VALUE.match(text, name.end()) if self.hides(name[2]) and name.start() >= end else None
            if value is not None and value[0].lower() not in _SCHEMES:
                parts += [text[end : name.end()], HIDDEN]
                end = value.end()
        return "".join([*parts, text[end:]])


def _json_in(text: str) -> Any:
    """The object or list that a text is, such as a header in which Celery keeps its own; else None."""
    if text[:1] not in ("{", "["):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"redact: {pattern!r:.80} is not a regular expression: {error}") from None


def _is_card(text: str) -> bool:
    digits = text.replace(" ", "").replace("-", "")
    if not (digits.isascii() and digits.isdigit() and 13 <= len(digits) <= 19 and _ISSUER.match(digits)):
        return False
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(each - 9 * (each > 9) for each in doubled) % 10 == 0
