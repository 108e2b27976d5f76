"""The compiled replay of a table of events: every measure of `newsstand.lab.result_replay`, count for count."""

from __future__ import annotations

from newsstand.caching import RESULT_POLICIES
from newsstand.caching.kernels.results import compiled_results
from newsstand.caching.kernels.results_broker import SUMS, Rules, new_broker
from newsstand.caching.kernels.results_crowd import new_crowd
from newsstand.caching.kernels.results_sums import totals
from newsstand.caching.kernels.results_table import ResultTable, arrange, most_subscribers
from newsstand.caching.kernels.results_windows import new_windows
from newsstand.caching.lifetimes import LINK_BYTES_PER_MS
from newsstand.errors import BadOption, BadTrace
from newsstand.lab.broker_events import BrokerEvents
from newsstand.lab.result_counts import Measured, ResultCounts
from newsstand.lab.result_replay import ReplaySetting, replay

LARGEST = 2**53
"""Up to here every integer is a double, and scores compare as the integers that they are."""
OF_EACH_CACHE = ("put", "ttl_put_ms", "dropped", "hold_dropped_ms")
"""Sums that every cache has for itself."""


def replay_compiled(events: BrokerEvents, setting: ReplaySetting) -> dict[str, Measured]:
    """Every measure by its name, after a replay of the whole table."""
    if not is_compiled(setting):
        return replay(events, setting)
    return replay_arranged(arrange_events(events), setting, setting.end_of(events))


def is_compiled(setting: ReplaySetting) -> bool:
    """Whether there is a kernel for its policy; one that follows others is left to the broker's core."""
    return not RESULT_POLICIES[setting.policy].follows


def arrange_events(events: BrokerEvents) -> ResultTable:
    """What all settings share; none of it changes in a replay."""
    table = arrange(events.time_ms, events.kind, events.subscriber, events.subscription, events.size)
    # As the numerators of LSD do: see `newsstand.caching.bad2018`.
    if most_subscribers(table) * (5_000_000 + table.largest) > LARGEST:
        raise BadTrace(f"a result of {table.largest} bytes is too large for the compiled replay of so many")
    return table


def replay_arranged(
    table: ResultTable, setting: ReplaySetting, end_ms: int, *, each_cache: bool = False
) -> dict[str, Measured]:
    """Replay a table that was arranged before, if asked with some sums of each cache, in the order of ids."""
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
    rules = Rules(
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
    broker, windows = new_broker(table, rules), new_windows(table, rules)
    compiled_results(policy)(table.rows, broker, new_crowd(table), windows, rules)
    counts = ResultCounts(**dict(zip(SUMS, totals(broker.sums), strict=True)))
    of_each: dict[str, Measured] = {}
    if each_cache:
        of_each = {f"each_{name}": broker.caches[name].astype(float).tolist() for name in OF_EACH_CACHE}
    return {
        "policy": setting.policy,
        "cache_bytes": setting.cache_bytes,
        "evict": setting.evict,
        "expiry": setting.expiry,
        **counts.measures(end_ms=end_ms, window_ms=setting.window_ms),
        "sum_rho_T": [
            expected / ((1 if policy.averages else min(setting.windows, number)) * setting.window_ms)
            for number, expected in enumerate(totals(windows.expected), start=1)
        ],
        **of_each,
    }
