"""Notifications of the data cluster: who signed them, and whether they were seen before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import httpx

from newsstand.signing import HEADER, BadSignature, Recipient, Replays, SignedHead, verify_head

Sender = Literal["cluster", "origin"]
PATHS: Mapping[Sender, str] = {"cluster": "/told", "origin": "/pushed"}
"""Where each sender posts to, below the broker's callback address. Each numbers its deliveries by itself."""


class Webhook:
    """Verifies notifications under the secret that the cluster gave to this broker."""

    def __init__(self, broker: str, callback: str) -> None:
        """`callback`: the address below which the cluster reaches the broker."""
        self._recipients = {sender: Recipient(broker, path_of(callback, path)) for sender, path in PATHS.items()}
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

    def admit(self, sender: Sender, signature: str, now_s: float) -> SignedHead:
        """Verify the head of a notification, before its body is read; raise BadSignature."""
        if self._secret is None:
            raise BadSignature("this broker is not registered at a cluster yet")
        return verify_head(self._secret, self._recipients[sender], signature, now_s)

    def seen(self, sender: Sender, head: SignedHead) -> bool:
        """Tell whether a notification was acted on before, or only asks whether the broker answers."""
        return self._replays.seen(sender, head.delivery_id)

    def require_new(self, sender: Sender, head: SignedHead) -> None:
        """Raise BadSignature for a notification that was acted on before."""
        if self.seen(sender, head):
            raise BadSignature(f"header {HEADER}: this push, or one after it, was taken already")

    def acted_on(self, sender: Sender, head: SignedHead) -> None:
        """Remember a notification, which needs no repetition."""
        self._replays.remember(sender, head.delivery_id)


def path_of(callback: str, route: str) -> str:
    """Return the path of a route below an address, as it is written into requests."""
    return httpx.URL(f"{callback.rstrip('/')}{route}").raw_path.decode("ascii")
