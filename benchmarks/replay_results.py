"""How fast broker events are replayed: `python benchmarks/replay_results.py [events] [cache bytes]`.

A table of the shape of bad2018's section V, but with subscriptions that last: 10,000 subscribers with ten
subscriptions each to 1,000 streams, six hours, results every 10 to 60 s. Every policy is replayed by the core of
the live broker, then compiled; both must come to the same. Seconds are CPU time, so that neighbours disturb less.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from newsstand.caching import RESULT_POLICIES
from newsstand.lab.results.compiled import replay_compiled
from newsstand.lab.results.events import (
    COLUMNS,
    LOGIN,
    LOGOUT,
    RESULT,
    SUBSCRIBE,
    BrokerEvents,
)
from newsstand.lab.results.replay import ReplaySetting, replay

SUBSCRIBERS, STREAMS, EACH = 10_000, 1_000, 10
END_MS = 6 * 3_600_000
STAYS = 200
"""More stays than anybody has in six hours."""


def table(rng: np.random.Generator) -> BrokerEvents:
    """Everybody subscribes at time 0, and comes and goes by the paper's log-normal laws."""
    who = np.repeat(np.arange(SUBSCRIBERS), EACH)
    what = np.concatenate([rng.choice(STREAMS, EACH, replace=False) for _ in range(SUBSCRIBERS)])
    parts = [(np.zeros(len(who)), SUBSCRIBE, who, what, np.zeros(len(who)))]
    on = rng.lognormal(1.753, 1.425, (SUBSCRIBERS, STAYS)) * 60_000
    off = rng.lognormal(2.415, 1.11, (SUBSCRIBERS, STAYS)) * 60_000
    # A subscriber that begins online has the first stay from time 0, the others after a time away.
    begins_away = rng.random(SUBSCRIBERS) < 0.5
    logout = np.cumsum(on + off, axis=1) - off + np.where(begins_away, off[:, -1], 0)[:, None]
    login = logout - on
    for kind, times in ((LOGIN, login), (LOGOUT, logout)):
        rows, columns = np.nonzero(times < END_MS)
        nothing = np.zeros(len(rows))
        parts.append((times[rows, columns], kind, rows, nothing, nothing))
    for stream in range(STREAMS):
        mean_ms = rng.uniform(10_000, 60_000)
        arrivals = np.cumsum(rng.exponential(mean_ms, int(END_MS / mean_ms * 1.3) + 50))
        arrivals = arrivals[arrivals < END_MS]
        n = len(arrivals)
        parts.append((arrivals, RESULT, np.zeros(n), np.full(n, stream), rng.integers(1_000, 500_001, n)))
    times, subscriber, subscription, size = (
        np.concatenate([part[i] for part in parts]).astype(np.int64) for i in (0, 2, 3, 4)
    )
    kind = np.concatenate([np.full(len(part[0]), part[1], np.uint8) for part in parts])
    order = np.argsort(times, kind="stable")
    return BrokerEvents(times[order], kind[order], subscriber[order], subscription[order], size[order])


def cpu_seconds(run: Callable[[], dict[str, object]]) -> tuple[float, dict[str, object]]:
    begun = time.process_time()
    measured = run()
    return time.process_time() - begun, measured


def main() -> None:
    events = table(np.random.default_rng(1))
    if len(sys.argv) > 1:
        events = BrokerEvents(*(getattr(events, column)[: int(sys.argv[1])] for column in COLUMNS))
    cache_bytes = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000_000
    print(f"{len(events):,} events, {cache_bytes:,} bytes of cache")
    print("| policy | core s | events/s | compiled s | events/s | hit ratio |")
    print("|---|---|---|---|---|---|")
    totals = [0.0, 0.0]
    for policy in RESULT_POLICIES:
        setting = ReplaySetting(policy, cache_bytes, evict="after")
        replay_compiled(events, setting)  # compiles, or loads what was compiled
        core, measured = cpu_seconds(lambda setting=setting: replay(events, setting))
        compiled, same = cpu_seconds(lambda setting=setting: replay_compiled(events, setting))
        assert measured == same, policy
        totals = [totals[0] + core, totals[1] + compiled]
        rates = f"{core:.1f} | {len(events) / core:,.0f} | {compiled:.2f} | {len(events) / compiled:,.0f}"
        print(f"| {policy} | {rates} | {measured['hit_ratio']:.4f} |", flush=True)
    print(f"all policies: core {totals[0]:.1f} s, compiled {totals[1]:.2f} s")


if __name__ == "__main__":
    main()
