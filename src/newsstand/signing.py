"""Signed notifications: the cluster signs them, brokers verify them. And the keys of a platform's parts.

The header `Newsstand-Signature` is `t=…,id=…,length=…,sha256=…,v2=…`: the time of sending in Unix seconds, the
number of the delivery, the length of the body in bytes, the SHA-256 of the body, and the HMAC-SHA256, under the
secret that the broker was given when it registered, of these seven lines without an end of line after the last:

    POST                the method
    /told               the path of the callback, with its query if it has one
    edge                the name of the broker
    1700000000          t
    7                   id
    2                   length
    44136fa3…           sha256

So a broker knows from the head of a request alone that the cluster has sent it, and reads no body of anybody else.
The numbers of one sender's deliveries only rise, so one number tells what has been seen.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from newsstand.errors import NewsstandError

HEADER = "Newsstand-Signature"
"""The header that carries a signature."""
TOLERANCE_S = 300.0
"""How far the clocks of sender and receiver may differ."""

_FORM = re.compile(
    r"t=(\d{1,15}),id=(\d{1,19}),length=(\d{1,15}),sha256=([0-9a-f]{64}),v2=([0-9a-f]{64})", re.ASCII
)


class BadSignature(NewsstandError):
    """A notification is not signed, not by its sender, not for its receiver, or too old."""


class Recipient(NamedTuple):
    """For whom a notification is: a broker, and the path of its callback."""

    broker: str
    path: str
    method: str = "POST"


@dataclass(frozen=True)
class SignedHead:
    """What a valid signature says of a notification before its body is read."""

    delivery_id: int
    length: int
    sha256: str

    def check(self, body: bytes) -> None:
        """Raise BadSignature unless this is the body that was signed."""
        if len(body) != self.length or not hmac.compare_digest(sha256(body).hexdigest(), self.sha256):
            raise BadSignature(f"header {HEADER}: the signature is not one of this body")


def sign(secret: str, recipient: Recipient, body: bytes, timestamp: int, delivery_id: int) -> str:
    """Return the header of a body sent at `timestamp` (Unix seconds)."""
    digest = sha256(body).hexdigest()
    code = _code(secret, recipient, timestamp, delivery_id, len(body), digest)
    return f"t={timestamp},id={delivery_id},length={len(body)},sha256={digest},v2={code}"


def verify_head(
    secret: str, recipient: Recipient, header: str, now: float, tolerance_s: float = TOLERANCE_S
) -> SignedHead:
    """Verify a header before the body is read; it must be for the recipient and at most `tolerance_s` off."""
    found = _FORM.fullmatch(header)
    if found is None:
        raise BadSignature(f"header {HEADER}: must be t=…,id=…,length=…,sha256=…,v2=…")
    timestamp, delivery_id, length = int(found[1]), int(found[2]), int(found[3])
    if abs(now - timestamp) > tolerance_s:
        raise BadSignature(
            f"header {HEADER}: signed {now - timestamp:.0f} s ago; compare the clocks of both sides"
        )
    if not hmac.compare_digest(_code(secret, recipient, timestamp, delivery_id, length, found[4]), found[5]):
        raise BadSignature(
            f"header {HEADER}: the signature is not one for broker '{recipient.broker}' and path "
            f"'{recipient.path}' under this secret"
        )
    return SignedHead(delivery_id, length, found[4])


def verify(
    secret: str, recipient: Recipient, header: str, body: bytes, now: float, tolerance_s: float = TOLERANCE_S
) -> int:
    """Return the number of the delivery if the header fits the recipient and the body."""
    head = verify_head(secret, recipient, header, now, tolerance_s)
    head.check(body)
    return head.delivery_id


def _code(secret: str, recipient: Recipient, timestamp: int, delivery_id: int, length: int, digest: str) -> str:
    signed = (recipient.method, recipient.path, recipient.broker, timestamp, delivery_id, length, digest)
    return hmac.new(secret.encode(), "\n".join(map(str, signed)).encode(), sha256).hexdigest()


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
