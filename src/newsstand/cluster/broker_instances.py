"""Which process acts as which broker: two processes with one name would share its notifications by chance."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from newsstand.errors import Duplicate
from newsstand.model import is_earlier_start, is_same_folder

LEASE_S = 10.0
"""How long a process has its name after its last call. Brokers call every few seconds."""


class BrokerInstances:
    """The processes that called last, by the names of their brokers. Methods may be called from several threads.

    A process without an instance is not known here: whoever writes a broker of its own may go without.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, lease_s: float = LEASE_S) -> None:
        self._clock = clock
        self._lease_s = lease_s
        self._known: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def claim(self, name: str, instance: str) -> None:
        """Let a process be a broker; raise Duplicate while one with another data folder has the name.

        A process with the same data folder is the broker started again.
        """
        if not instance:
            return
        with self._lock:
            known, heard = self._known.get(name, (instance, 0.0))
            is_leased = self._clock() - heard < self._lease_s
            if is_leased and is_earlier_start(instance, known):
                raise Duplicate(f"broker '{name}' was started again: this process has to stop", self._lease_s)
            if is_leased and not is_same_folder(known, instance):
                raise Duplicate(
                    f"another process acts as broker '{name}': give each broker a name of its own", self._lease_s
                )
            self._known[name] = instance, self._clock()

    def require(self, name: str, instance: str) -> None:
        """Raise Duplicate if another process has claimed the name since."""
        if not instance:
            return
        with self._lock:
            known, _ = self._known.get(name, (instance, 0.0))
            if known != instance:
                raise Duplicate(f"another process acts as broker '{name}': this one has to stop", self._lease_s)
            self._known[name] = instance, self._clock()
