"""How long the objects of each result cache live, in a replay: the twin of `newsstand.caching.lifetimes`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newsstand.caching.kernels import results_broker as state
from newsstand.caching.kernels.results_broker import Rules
from newsstand.caching.kernels.results_jit import borrowing
from newsstand.caching.kernels.results_sums import Sums, add_product, new_sums, product, share
from newsstand.caching.kernels.results_table import ResultTable
from newsstand.caching.lifetimes import AVERAGE_OVER


class Windows(NamedTuple):
    """What closed windows leave behind."""

    growth: npt.NDArray[np.int64]
    """Of each cache in the latest windows, a row each."""
    expected: Sums
    """By window, the sum of D_i T_i."""


def new_windows(table: ResultTable, rules: Rules) -> Windows:
    """No window is closed."""
    closings = rules.end_ms // rules.window_ms if rules.keeps else 0
    # As long as no window is too old to count, none has to be remembered.
    remembered = rules.windows if rules.windows < closings else 0
    return Windows(np.zeros((remembered, len(table.first_position) - 1), np.int64), new_sums(closings))


@borrowing(cache=True)
def close_window(broker, windows, rules):  # type: ignore[no-untyped-def]
    """Set every time to live by what was measured (equation 7)."""
    window = broker.numbers[state.CLOSED]
    broker.numbers[state.CLOSED] = window + 1
    if broker.numbers[state.MEASURED] == 0:
        return
    span_ms = (1 if rules.averages else min(rules.windows, window + 1)) * rules.window_ms
    low, high = product(np.uint64(rules.budget), np.uint64(span_ms))
    remembered = len(windows.growth)
    subscribers = 0
    for which in range(len(broker.caches)):
        subscribers += broker.caches[which].subscribers
    for which in range(len(broker.caches)):
        cache = broker.caches[which]
        if not cache.measured:
            continue
        cache.grown += cache.growth
        if remembered > 0:
            cache.grown -= windows.growth[window % remembered, which]
            windows.growth[window % remembered, which] = cache.growth
        cache.average += (cache.growth - cache.average) // AVERAGE_OVER if cache.averaged else cache.growth
        cache.averaged = 1
        if cache.growth != 0:
            cache.grew = window
        cache.growth = 0
        grown = cache.average if rules.averages else cache.grown
        if cache.subscribers == 0:
            cache.ttl_ms = rules.unmeasured_ms
            if window - cache.grew >= rules.windows:  # all that is remembered of it is zero
                cache.measured = cache.average = cache.averaged = 0
                broker.numbers[state.MEASURED] -= 1
        elif grown <= 0:
            cache.ttl_ms = rules.cap_ms
        else:
            cache.ttl_ms = share(cache.subscribers, subscribers, low, high, grown, rules.cap_ms)
            add_product(windows.expected, window, grown, cache.ttl_ms)
        state.rescore(broker, rules, which, True)
