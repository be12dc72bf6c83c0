"""Addresses: who can reach them, and what was meant by one that stands for nothing."""

from __future__ import annotations

from collections.abc import Collection

from postroom.errors import did_you_mean


def is_loopback(host: str) -> bool:
    """Whether this address can only be reached from this machine."""
    import ipaddress  # here and not above: a program that only works on messages needs it not

    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def meant_by(scheme: str, known: Collection[str]) -> str:
    """A word to whoever took one kind of URL for another, or mistyped it; "" if there is none to say."""
    if scheme in ("amqp", "amqps"):
        return " (RabbitMQ carries events between services: postroom.celery.events)"
    bare = scheme.removeprefix("postroom+")
    if bare != scheme and bare in known:
        return f" (only a broker_url of Celery begins so; here it is {bare}://)"
    hint = did_you_mean(scheme, known)  # bare: with what all end in, postgres looks like redis
    return hint and f" ({hint.removesuffix('?')}://?)"
