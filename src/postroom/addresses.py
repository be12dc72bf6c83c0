"""Addresses: who can reach them."""

from __future__ import annotations


def is_loopback(host: str) -> bool:
    """Whether this address can only be reached from this machine."""
    import ipaddress  # here and not above: a program that only works on messages needs it not

    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"
