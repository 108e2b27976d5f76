"""Failed logins slow further ones down: guessing costs time, and nobody is locked out of an account by a stranger.

Failures are counted for each account and address, for each address, and for each account. The first ones are free;
each further one doubles the time after which the next attempt is looked at. An address from which the account was
logged in to before waits for its own failures only: others may exhaust the account's or the network's free ones.
Tokens and their renewal are not concerned. Counts are in the memory of one broker, and forgotten an hour after the
last failure.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from newsstand.broker.accounts import NAME
from newsstand.errors import Busy
from newsstand.serving.client_address import network_of

FORGET_S = 3600.0
MOST_KEPT = 100_000
"""Accounts and addresses of each kind that are remembered; the one that failed longest ago makes room."""


@dataclass(frozen=True)
class Delay:
    """So many failures are free; then one second, doubled by each further one, up to the most."""

    free: int
    most_s: float

    def after(self, failures: int) -> float:
        """Return how long the next attempt has to wait."""
        return 0.0 if failures < self.free else min(self.most_s, 2.0 ** min(failures - self.free, 30))


PAIR = Delay(5, 300)
"""Of one account from one address."""
ADDRESS = Delay(50, 300)
"""Of all accounts from one address."""
ACCOUNT = Delay(100, 60)
"""Of one account from all addresses."""


@dataclass
class _Failures:
    count: int = 0
    last_s: float = 0.0
    until_s: float = 0.0


class Attempts:
    """The failed logins of the last hour at one broker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most_kept: int = MOST_KEPT) -> None:
        self._clock = clock
        self._most_kept = most_kept
        self._pairs: OrderedDict[str, _Failures] = OrderedDict()
        self._addresses: OrderedDict[str, _Failures] = OrderedDict()
        self._accounts: OrderedDict[str, _Failures] = OrderedDict()
        self._good: OrderedDict[str, None] = OrderedDict()
        """Pairs of account and address with a login that succeeded."""

    def require(self, account: str, address: str) -> None:
        """Raise Busy if an attempt comes too early after failed ones; it is neither looked at nor counted."""
        pair = _pair(account, address)
        now = self._clock()
        waits = [
            failures.until_s - now
            for table, key, _ in self._tables(account, address)
            if (table is self._pairs or pair not in self._good) and (failures := table.get(key)) is not None
        ]
        if (wait_s := max(waits, default=0.0)) > 0:
            raise Busy("too many logins have failed; try again later", wait_s)

    def failed(self, account: str, address: str) -> None:
        """Count a failure."""
        now = self._clock()
        for table, key, delay in self._tables(account, address):
            failures = table.pop(key, None)
            if failures is None or now - failures.last_s > FORGET_S:
                failures = _Failures()
            failures.count += 1
            failures.last_s = now
            failures.until_s = now + delay.after(failures.count)
            table[key] = failures
            if len(table) > self._most_kept:
                table.popitem(last=False)

    def succeeded(self, account: str, address: str) -> None:
        """Forget the failures of this account from this address; those of others at the address stay."""
        pair = _pair(account, address)
        self._pairs.pop(pair, None)
        self._good.pop(pair, None)
        self._good[pair] = None
        if len(self._good) > self._most_kept:
            self._good.popitem(last=False)

    def _tables(self, account: str, address: str) -> Iterator[tuple[OrderedDict[str, _Failures], str, Delay]]:
        yield self._pairs, _pair(account, address), PAIR
        yield self._addresses, network_of(address), ADDRESS
        yield self._accounts, _known(account), ACCOUNT


def _pair(account: str, address: str) -> str:
    return f"{_known(account)} {network_of(address)}"


def _known(account: str) -> str:
    """What cannot be a name counts as one account: long texts are not remembered."""
    return account if NAME.fullmatch(account) is not None else ""
