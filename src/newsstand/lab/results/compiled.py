"""The compiled replay of a table of events: every measure of `newsstand.lab.results.replay`, count for count."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from newsstand.caching import RESULT_POLICIES
from newsstand.caching.kernels.results.broker import SUMS, ReplayRules, new_broker_caches
from newsstand.caching.kernels.results.replay import compiled_results, new_windows
from newsstand.caching.kernels.results.subscribers import new_subscriber_table
from newsstand.caching.kernels.results.table import ResultTable, arrange, most_subscribers
from newsstand.caching.kernels.results.wide_integers import totals
from newsstand.caching.results.lifetimes import LINK_BYTES_PER_MS
from newsstand.errors import BadOption, BadTrace
from newsstand.lab.results.events import BrokerEvents
from newsstand.lab.results.replay import Measure, ReplaySetting, ResultCounts, replay

LARGEST = 2**53
"""Up to here every integer is a double, and scores compare as integers."""
OF_EACH_CACHE = ("put", "ttl_put_ms", "dropped", "hold_dropped_ms")
"""Sums that are kept for each cache."""


def replay_compiled(events: BrokerEvents, setting: ReplaySetting) -> dict[str, Measure]:
    """Return every measure by its name, after a replay of the whole table."""
    return compiled_replay(events)(setting)


def compiled_replay(events: BrokerEvents) -> Callable[[ReplaySetting], dict[str, Measure]]:
    """Return the replay of a table under any setting, for any thread; the table is arranged once.

    Policies without a compiled replay are left to the broker's core.
    """
    table: ResultTable | None = None
    arranging = Lock()

    def replayed(setting: ReplaySetting) -> dict[str, Measure]:
        nonlocal table
        if not is_compiled(setting):
            return replay(events, setting)
        end_ms = setting.end_of(events)
        with arranging:
            table = table or arrange_events(events)
        return replay_arranged(table, setting, end_ms)

    return replayed


def is_compiled(setting: ReplaySetting) -> bool:
    """Return whether there is a kernel for its policy; one that follows others is left to the broker's core."""
    return not RESULT_POLICIES[setting.policy].follows


def arrange_events(events: BrokerEvents) -> ResultTable:
    """Arrange a table for replay under any setting."""
    table = arrange(events.time_ms, events.kind, events.subscriber, events.subscription, events.size)
    # As the numerators of LSD do: see `newsstand.caching.results.policies`.
    if most_subscribers(table) * (5_000_000 + table.largest) > LARGEST:
        raise BadTrace(f"a result of {table.largest} bytes is too large for the compiled replay")
    return table


def replay_arranged(
    table: ResultTable, setting: ReplaySetting, end_ms: int, *, each_cache: bool = False
) -> dict[str, Measure]:
    """Replay an arranged table; with `each_cache` add the sums of each cache, in the order of ids."""
    policy = RESULT_POLICIES[setting.policy]
    if not is_compiled(setting):
        raise BadOption(f"policy '{policy.name}' follows others and is not compiled: replay it by the core")
    for name, given, most in (
        ("cache_bytes", setting.cache_bytes, 2**63 - 1),
        ("end_ms and cap_ms together", end_ms + setting.cap_ms, LARGEST),
        ("window_ms", setting.window_ms, LARGEST),
    ):
        if given > most:
            raise BadOption(f"{name}: the compiled replay takes up to {most}, not {given}")
    rules = ReplayRules(
        budget=setting.cache_bytes,
        end_ms=end_ms,
        window_ms=setting.window_ms,
        windows=min(setting.windows, end_ms // setting.window_ms + 1),
        cap_ms=setting.cap_ms,
        unmeasured_ms=min(setting.cap_ms, setting.cache_bytes // LINK_BYTES_PER_MS),
        evicts_on_put=setting.evict == "put",
        stamps=setting.expiry == "object" and policy.keeps,
        keeps=policy.keeps,
        scores=policy.score is not None,
        expires=policy.expires,
        bounded=policy.bounded,
        averages=policy.averages,
        anywhere=policy.anywhere,
    )
    broker, windows = new_broker_caches(table, rules), new_windows(table, rules)
    compiled_results(policy)(table.rows, broker, new_subscriber_table(table), windows, rules)
    counts = ResultCounts(**dict(zip(SUMS, totals(broker.sums), strict=True)))
    sum_rho_ttl = [
        expected / ((1 if policy.averages else min(setting.windows, number)) * setting.window_ms)
        for number, expected in enumerate(totals(windows.expected), start=1)
    ]
    measures = counts.measures(setting, end_ms, sum_rho_ttl)
    if each_cache:
        measures |= {f"each_{name}": broker.caches[name].astype(float).tolist() for name in OF_EACH_CACHE}
    return measures
