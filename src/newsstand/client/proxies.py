"""The proxies of the environment: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY."""

from __future__ import annotations

from functools import cache
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def proxy_for(url: str) -> str | None:
    """The proxy over which an address is asked, if any."""
    return _proxy_of("/".join(url.split("/", 3)[:3]))


@cache
def _proxy_of(origin: str) -> str | None:
    """Looked up once for each server: it takes longer than it takes to build a request."""
    scheme, netloc = urlsplit(origin)[:2]
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if proxy is None or proxy_bypass(netloc):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
