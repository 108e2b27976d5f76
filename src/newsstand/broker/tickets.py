"""Tickets: who is sent to another broker for a page shows that some broker of the platform has let it in.

A ticket is good for one page and a short time, so that a redirect works without a session at the other broker, and
nobody's home moves for the sake of a page.
"""

from __future__ import annotations

import hmac
import re
from hashlib import sha256

from newsstand.broker.accounts import NoKeys

LIFETIME_S = 60
_FORM = re.compile(r"([0-9]{1,12})\.([0-9a-f]{64})", re.ASCII)


class Tickets:
    """Makes and checks tickets under a key that all brokers of a platform have."""

    def __init__(self, key: str | None) -> None:
        """Without a key nobody is let in, until `use`."""
        self._key = None if key is None else key.encode()

    def use(self, key: str) -> None:
        """Make and check tickets under this key from now on."""
        self._key = key.encode()

    def ticket(self, path: str, now_s: float) -> str:
        """A ticket for a page."""
        expires = int(now_s) + LIFETIME_S
        return f"{expires}.{self._digest(path, expires)}"

    def admits(self, ticket: str, path: str, now_s: float) -> bool:
        """Whether a ticket is one of the platform's, for this page, and still good."""
        found = _FORM.fullmatch(ticket)
        if found is None or self._key is None:
            return False
        expires = int(found[1])
        genuine = hmac.compare_digest(self._digest(path, expires), found[2])
        return genuine and now_s <= expires

    def _digest(self, path: str, expires: int) -> str:
        if not self._key:
            raise NoKeys
        return hmac.new(self._key, f"{expires} {path}".encode(), sha256).hexdigest()
