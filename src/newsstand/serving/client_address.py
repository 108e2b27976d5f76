"""The address of a client, also behind reverse proxies, as logs show it and limits count by it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from newsstand.errors import BadOption

LONGEST = 64


def proxy_options(trusted: Sequence[str]) -> dict[str, Any]:
    """Arguments of `uvicorn.Config`: `X-Forwarded-For` and `X-Forwarded-Proto` count from these addresses only."""
    return {"proxy_headers": bool(trusted), "forwarded_allow_ips": list(trusted)}


def proxies_of(value: object) -> tuple[str, ...]:
    """Trusted proxies as a setting gives them: a list, or a text with commas; raise BadOption."""
    listed = [one.strip() for one in value.split(",")] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise BadOption('must be a list of addresses and networks, such as ["10.0.0.1", "10.1.0.0/16"]')
    require_proxies(listed)
    return tuple(listed)


def require_proxies(trusted: Sequence[str]) -> None:
    """Raise BadOption unless all of them are addresses or networks."""
    for one in trusted:
        try:
            ipaddress.ip_network(one)
        except ValueError:
            raise BadOption(f"{one!r} is neither an address nor a network such as 10.0.0.0/8") from None


def client_of(scope: Mapping[str, Any]) -> str:
    """Return the address of who sent a request; empty if it has none, as over a Unix socket."""
    client = scope.get("client")
    return str(client[0])[:LONGEST] if client else ""


def network_of(address: str) -> str:
    """Return what limits count by: an IPv4 address, or the /64 network of an IPv6 one, which one client can fill.

    >>> network_of("2001:db8::1:2:3:4")
    '2001:db8::/64'
    """
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))
