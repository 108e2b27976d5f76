"""Notifications of the data cluster: who signed them, and whether they were seen before."""

from __future__ import annotations

from newsstand.broker.told import Told, read_told
from newsstand.signing import HEADER, BadSignature, Replays, verify

CLUSTER = "cluster"
ORIGIN = "origin"


class Webhook:
    """Verifies notifications under the secret that the cluster gave to this broker."""

    def __init__(self) -> None:
        self._secret: str | None = None
        self._replays = Replays()

    def trust(self, secret: str) -> None:
        """Notifications are signed under this secret from now on."""
        if secret != self._secret:
            self._secret = secret
            self._replays = Replays()  # another cluster, or one that begins anew

    @property
    def ready(self) -> bool:
        """Whether there is a secret to verify with."""
        return self._secret is not None

    def take(self, signature: str, body: bytes, now_s: float) -> tuple[int, Told] | None:
        """What the cluster tells, under its number; None if it was told before, or only asks.

        BadSignature if it is not from the cluster. Until `acted_on`, a repetition is told again.
        """
        if self._secret is None:
            raise BadSignature("this broker is not registered at a cluster yet")
        delivery = verify(self._secret, signature, body, now_s)
        if self._replays.seen(CLUSTER, delivery):
            return None
        return delivery, read_told(body)

    def take_push(self, signature: str, body: bytes, now_s: float) -> None:
        """A push of the origin's, which counts by itself; BadSignature if it is not from there, or not new."""
        if self._secret is None:
            raise BadSignature("this broker is not registered at a cluster yet")
        push = verify(self._secret, signature, body, now_s)
        if self._replays.seen(ORIGIN, push):
            raise BadSignature(f"header {HEADER}: this push, or one after it, was taken already")
        self._replays.remember(ORIGIN, push)

    def acted_on(self, delivery: int) -> None:
        """A notification needs no repetition."""
        self._replays.remember(CLUSTER, delivery)
