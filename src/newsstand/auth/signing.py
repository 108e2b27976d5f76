"""Signatures: of notifications, which the cluster signs and brokers verify, and of URLs of pages.

The header `Newsstand-Signature` is `t=…,id=…,length=…,sha256=…,v2=…`: the time of sending in Unix seconds, the
number of the delivery, the length of the body in bytes, the SHA-256 of the body, and the HMAC-SHA256, under the
secret that the broker was given when it registered, of these seven lines without an end of line after the last:

    POST                the method
    /notifications      the path of the callback, with its query if it has one
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

from newsstand.errors import NewsstandError, NoKeys

HEADER = "Newsstand-Signature"
"""The header that carries a signature."""
TOLERANCE_S = 300.0
"""How far the clocks of sender and receiver may differ."""

_FORM = re.compile(
    r"t=(\d{1,15}),id=(\d{1,19}),length=(\d{1,15}),sha256=([0-9a-f]{64}),v2=([0-9a-f]{64})", re.ASCII
)


URL_LIFETIME_S = 60
_URL_SIGNATURE = re.compile(r"([0-9]{1,12})\.([0-9a-f]{64})", re.ASCII)


class BadSignature(NewsstandError):
    """A request is not signed by its sender for its receiver, or its signature is too old."""


class Recipient(NamedTuple):
    """The recipient of a signed request: a broker, and the path of its callback."""

    broker: str
    path: str
    method: str = "POST"


@dataclass(frozen=True)
class SignedHead:
    """What a valid signature says of a request before its body is read."""

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
    """Derive the key for one purpose from a secret; no key can be computed from another."""
    return hmac.new(secret.encode(), purpose.encode(), sha256).hexdigest()


class Replays:
    """The last delivery of each sender: a repeated delivery is acknowledged and ignored.

    A cluster that did not hear the answer repeats the delivery, so a repetition is no offence.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def seen(self, sender: str, delivery_id: int) -> bool:
        """Return whether a delivery, or a later one, was processed before."""
        return delivery_id <= self._last.get(sender, 0)

    def remember(self, sender: str, delivery_id: int) -> None:
        """Record that a delivery was processed."""
        self._last[sender] = max(delivery_id, self._last.get(sender, 0))


class SignedUrls:
    """Signs and verifies URLs of pages under a key that all brokers of a platform have.

    A signature is good for one page and a short time, so that a redirect works without a session at the other
    broker, and the redirect changes no assignment.
    """

    def __init__(self, key: str | None) -> None:
        """Without a key no signature is valid, until `use`."""
        self._key = None if key is None else key.encode()

    def use(self, key: str) -> None:
        """Sign and verify under this key from now on."""
        self._key = key.encode()

    def sign(self, path: str, now_s: float) -> str:
        """Return a signature for the path of a page."""
        expires = int(now_s) + URL_LIFETIME_S
        return f"{expires}.{self._digest(path, expires)}"

    def verify(self, signature: str, path: str, now_s: float) -> bool:
        """Return whether a signature is the platform's, for this page, and has not expired."""
        found = _URL_SIGNATURE.fullmatch(signature)
        if found is None or self._key is None:
            return False
        expires = int(found[1])
        genuine = hmac.compare_digest(self._digest(path, expires), found[2])
        return genuine and now_s <= expires

    def _digest(self, path: str, expires: int) -> str:
        if not self._key:
            raise NoKeys
        return hmac.new(self._key, f"{expires} {path}".encode(), sha256).hexdigest()
