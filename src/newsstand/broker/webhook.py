"""Notifications of the data cluster: who signed them, and whether they were seen before."""

from __future__ import annotations

from newsstand.broker.told import Told, read_told
from newsstand.signing import BadSignature, Replays, verify

CLUSTER = "cluster"


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

    def take(self, signature: str, body: bytes, now_s: float) -> Told | None:
        """What the cluster tells; None if it was told before or only asks; BadSignature if it is not from it."""
        if self._secret is None:
            raise BadSignature("this broker is not registered at a cluster yet")
        delivery = verify(self._secret, signature, body, now_s)
        if self._replays.seen(CLUSTER, delivery):
            return None
        told = read_told(body)
        self._replays.remember(CLUSTER, delivery)
        return told
