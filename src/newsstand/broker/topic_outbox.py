"""Publications that a storage has to have, until one says that it does."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec

from newsstand.broker.topic_ledger import Ledger
from newsstand.errors import Busy
from newsstand.overlay.messages import Publication, PublicationId

MOST = 100_000
AT_ONCE = 500
"""How many are sent again in one round."""
FIRST_S, LONGEST_S = 3.0, 60.0
"""How long a receipt is waited for before a publication is sent again; twice as long each time."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Publication).decode


@dataclass(slots=True)
class Waiting:
    """A publication without a receipt."""

    publication: Publication
    late: bool
    due: float
    patience: float = FIRST_S
    attempt: int = 0


class Outbox:
    """On disk before a publisher is answered. Times are of a clock that only goes forward, in seconds."""

    def __init__(self, ledger: Ledger, now: float) -> None:
        """What was there when the broker ended is due at once."""
        self._ledger = ledger
        self._waiting: dict[PublicationId, Waiting] = {}
        self._topics: Counter[str] = Counter()
        for written, late in ledger.read("SELECT publication, late FROM outbox ORDER BY number"):
            publication = _decode(written)  # type: ignore[arg-type]
            self._wait(Waiting(publication, bool(late), now))

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, key: PublicationId) -> bool:
        return key in self._waiting

    @property
    def topics(self) -> list[str]:
        """The topics of what waits."""
        return list(self._topics)

    def require_room(self) -> None:
        """Raise Busy if there is no room for one more."""
        if len(self._waiting) >= MOST:
            raise Busy("too many publications wait for their storages; try again in a while", 5.0)

    def add(self, publication: Publication, now: float, late: bool = False) -> None:
        """A publication is sent for the first time."""
        if publication.id in self._waiting:
            return
        self._wait(Waiting(publication, late, now + FIRST_S))
        key = (publication.origin, publication.number)
        self._ledger.write("INSERT OR REPLACE INTO outbox VALUES (?, ?, ?, ?)", *key, late, _encode(publication))

    def received(self, key: PublicationId) -> None:
        """A storage has it."""
        self._remove(key)

    def give_up(self, topic: str) -> int:
        """No storage will ever have what waits of a topic: how much that was."""
        keys = [key for key, one in self._waiting.items() if one.publication.topic == topic]
        for key in keys:
            self._remove(key)
        return len(keys)

    def hurry(self, now: float) -> None:
        """The tree has changed: what is on its way may have been lost."""
        for one in self._waiting.values():
            one.due, one.patience = min(one.due, now), FIRST_S

    def due(self, now: float, now_ms: int) -> list[Waiting]:
        """What has to be sent again, with the attempt to send it by, which is higher than all before."""
        found = []
        for one in self._waiting.values():
            if one.due <= now:
                one.due, one.patience = now + one.patience, min(LONGEST_S, one.patience * 2)
                # By the clock, so that it goes on rising after a restart.
                one.attempt = max(one.attempt + 1, now_ms - one.publication.at_ms)
                found.append(one)
                if len(found) == AT_ONCE:
                    break
        return found

    def _wait(self, one: Waiting) -> None:
        self._waiting[one.publication.id] = one
        self._topics[one.publication.topic] += 1

    def _remove(self, key: PublicationId) -> None:
        one = self._waiting.pop(key, None)
        if one is None:
            return
        self._ledger.write("DELETE FROM outbox WHERE origin = ? AND number = ?", *key)
        topic = one.publication.topic
        self._topics[topic] -= 1
        if not self._topics[topic]:
            del self._topics[topic]
