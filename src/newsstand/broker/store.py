"""What a broker must not lose: its contract. `store_sqlite` is the one that ships."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from newsstand.broker.records import Change, Record


class Store(Protocol):
    """Subscribers at home at this broker, and the changes that the coordinator has not heard of yet.

    `write` is one transaction, durable when it returns. Methods may be called from any thread.
    """

    def load(self) -> dict[str, Record]:
        """All subscribers, by name."""
        ...

    def write(self, changes: Sequence[Change]) -> None:
        """Make changes, in order."""
        ...

    def unsent(self, limit: int) -> tuple[int, list[Change]]:
        """The oldest changes for the coordinator, of acks the last ones only; and what to give to `sent`."""
        ...

    def sent(self, upto: int) -> None:
        """The coordinator has these changes."""
        ...

    def remember(self, what: str, text: str) -> None:
        """Keep a word of the broker's own, such as the secret that the cluster signs with."""
        ...

    def recall(self, what: str) -> str | None:
        """A word that was kept."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...
