"""Servers from which a broker fetches pages: those with public addresses, and those in `pages_allow`.

The platform's own servers are always rejected. Publishers choose the URLs, and name servers the addresses, so the
rule is about addresses, and the caller connects to an address that was checked.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from newsstand.errors import BadInput, BadOption

Address = IPv4Address | IPv6Address
PORTS = {"http": 80, "https": 443}
RESOLVERS = 64
"""Threads that query name servers, apart from those of the store, which a slow name server must not block."""
_NAME = re.compile(r"[a-z0-9_.-]+")
_NAT64 = IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = IPv6Network("64:ff9b:1::/48")


@dataclass(frozen=True)
class AllowedHost:
    """An entry of `pages_allow`: a name, an address or a network, for one port or all."""

    host: str | IPv4Network | IPv6Network
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> AllowedHost:
        """Read an entry; raise BadOption.

        >>> AllowedHost.parse("10.1.0.0/16")
        AllowedHost(host=IPv4Network('10.1.0.0/16'), port=None)
        >>> AllowedHost.parse("intranet.example:8080")
        AllowedHost(host='intranet.example', port=8080)
        """
        try:
            return cls(ip_network(text))
        except ValueError:
            pass
        try:
            parts = urlsplit(f"//{text}")
            host, port = parts.hostname or "", parts.port
        except ValueError:
            host, port = "", None
        if not host or parts.netloc != text or "@" in text or text.endswith(":") or port == 0:
            host = ""
        try:
            return cls(ip_network(host), port)
        except ValueError:
            if _NAME.fullmatch(host):
                return cls(host, port)
        raise BadOption(f"{text!r} is none of HOST, HOST:PORT and a network such as 10.1.0.0/16")

    def includes(self, host: str, address: Address, port: int) -> bool:
        if self.port not in (None, port):
            return False
        return self.host == host if isinstance(self.host, str) else address in self.host


class PageHosts:
    """The servers that pages may come from."""

    def __init__(self, allow: Iterable[str] = (), platform: Iterable[str] = ()) -> None:
        """`platform`: the URLs of the platform's own servers."""
        self._allow = [AllowedHost.parse(one) for one in allow]
        self._platform = {_server(url) for url in platform}
        self._resolvers = ThreadPoolExecutor(RESOLVERS, "page-hosts")

    def close(self) -> None:
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    async def addresses(self, host: str, port: int) -> list[Address]:
        """Resolve a host and check all its addresses; raise BadInput, or OSError if there are none."""
        found = await self._resolve(host, port)
        if await self._is_platform(host, port, found):
            raise BadInput(f"'{host}' port {port} is a server of the platform, which holds no pages of publishers")
        for address in found:
            listed = any(one.includes(host, address, port) for one in self._allow)
            never = address.is_unspecified or address.is_multicast or getattr(address, "scope_id", None)
            if never or not (listed or is_public(address)):
                raise BadInput(f"'{host}' port {port} has no public address; to allow it, list it in pages_allow")
        return found

    async def _is_platform(self, host: str, port: int, found: Sequence[Address]) -> bool:
        for own_host, own_port in self._platform:
            if own_port != port:
                continue
            if own_host == host:
                return True
            try:
                own = await self._resolve(own_host, port)
            except OSError:
                continue
            # A server that listens on all addresses of this machine answers at each of them.
            here = any(is_here(one) for one in own)
            if any(one in own or _behind(one) in own or (here and is_here(one)) for one in found):
                return True
        return False

    async def _resolve(self, host: str, port: int) -> list[Address]:
        def resolve() -> list[Address]:
            try:
                found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except UnicodeError as error:
                raise OSError(f"'{host}' is not a host") from error
            return list(dict.fromkeys(_plain(ip_address(one[4][0])) for one in found))

        return await asyncio.get_running_loop().run_in_executor(self._resolvers, resolve)


def is_public(address: Address) -> bool:
    """Return whether an address belongs to the public Internet.

    >>> [is_public(ip_address(one)) for one in ("8.8.8.8", "10.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1")]
    [True, False, False, False]
    """
    address = _plain(address)
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return is_public(_behind(address))
        if address in _NAT64_LOCAL or address.sixtofour is not None or address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def is_here(address: Address) -> bool:
    """Return whether an address belongs to this machine."""
    if address.is_loopback:
        return True
    with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def _behind(address: Address) -> Address:
    """Return the address behind a translator (NAT64)."""
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else address


def _plain(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _server(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)
