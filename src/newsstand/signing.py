"""Signed notifications: the cluster signs them, brokers verify them. And the keys of a platform's parts.

The header `Newsstand-Signature` is `t=…,id=…,v1=…`: the time of sending in Unix seconds, the number of the
delivery, and the HMAC-SHA256, in hexadecimal, of `{t}.{id}.` and the body under the secret that the broker was
given when it registered. The numbers of one sender's deliveries only rise, so one number tells what has been seen.
"""

from __future__ import annotations

import hmac
import re
from hashlib import sha256

from newsstand.errors import NewsstandError

HEADER = "Newsstand-Signature"
"""The header that carries a signature."""

_FORM = re.compile(r"t=(\d{1,15}),id=(\d{1,19}),v1=([0-9a-f]{64})", re.ASCII)


class BadSignature(NewsstandError):
    """A notification is not signed, not by its sender, or too old."""


def sign(secret: str, body: bytes, timestamp: int, delivery_id: int) -> str:
    """The header of a body sent at `timestamp` (Unix seconds)."""
    return f"t={timestamp},id={delivery_id},v1={_digest(secret, body, timestamp, delivery_id)}"


def verify(secret: str, header: str, body: bytes, now: float, tolerance_s: float = 300) -> int:
    """The number of the delivery, if the header fits the body and is at most `tolerance_s` off."""
    found = _FORM.fullmatch(header)
    if found is None:
        raise BadSignature(f"header {HEADER}: must be t=…,id=…,v1=…")
    timestamp, delivery_id = int(found[1]), int(found[2])
    if not hmac.compare_digest(_digest(secret, body, timestamp, delivery_id), found[3]):
        raise BadSignature(f"header {HEADER}: the signature is not one of this body under this secret")
    if abs(now - timestamp) > tolerance_s:
        raise BadSignature(
            f"header {HEADER}: signed {now - timestamp:.0f} s ago; compare the clocks of both sides"
        )
    return delivery_id


def _digest(secret: str, body: bytes, timestamp: int, delivery_id: int) -> str:
    return hmac.new(secret.encode(), f"{timestamp}.{delivery_id}.".encode() + body, sha256).hexdigest()


def key(secret: str, purpose: str) -> str:
    """The key for one purpose out of a platform's one secret: who knows one key knows no other."""
    return hmac.new(secret.encode(), purpose.encode(), sha256).hexdigest()


class Replays:
    """The last delivery of each sender: one that was seen is answered again, and not acted on again.

    A cluster that did not hear the answer repeats the delivery, so a repetition is no offence.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def seen(self, sender: str, delivery_id: int) -> bool:
        """Whether a delivery, or one after it, was seen before."""
        return delivery_id <= self._last.get(sender, 0)

    def remember(self, sender: str, delivery_id: int) -> None:
        """A delivery has been acted on."""
        self._last[sender] = max(delivery_id, self._last.get(sender, 0))
