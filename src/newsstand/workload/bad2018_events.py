"""The events of bad2018, each packed into two integers whose order is the order of the table.

The first is the time with the kind below it. The second is what the kind uses: subscriber and subscription, a
subscriber alone, or subscription and size.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from newsstand.workload.bad2018 import Ints, SimulationSettings, results
from newsstand.workload.bad2018_subscribers import KINDS, LOGIN, LOGOUT, RESULT, doings

KIND_BITS, FIELD_BITS = 3, 31


def doings_packed(settings: SimulationSettings, first: int, last: int) -> Ints:
    """What the subscribers from `first` to before `last` do."""
    done = doings(settings, first, last)
    return _packed(done.time, done.kind, done.subscriber, np.maximum(done.subscription, 0))


def results_packed(settings: SimulationSettings, unit: int, first: int, last: int) -> Ints:
    """The results of the subscriptions from `first` to before `last`."""
    time, subscription, size = results(settings, unit, first, last)
    return _packed(time, RESULT, subscription, size)


def _packed(time: Ints, kind: Ints | int, one: Ints, other: Ints) -> Ints:
    return np.stack([(time << KIND_BITS) | kind, (one << FIELD_BITS) | other], axis=1)


def time_of(packed: Ints) -> Ints:
    """The times of packed events."""
    times: Ints = packed[:, 0] >> KIND_BITS
    return times


def columns(packed: Ints) -> pa.Table:
    """The events as a table, in order; fields that a kind does not use are null."""
    packed = packed[np.lexsort((packed[:, 1], packed[:, 0]))]
    kind = packed[:, 0] & (2**KIND_BITS - 1)
    one, other = packed[:, 1] >> FIELD_BITS, packed[:, 1] & (2**FIELD_BITS - 1)
    is_result, is_session = kind == RESULT, (kind == LOGIN) | (kind == LOGOUT)
    return pa.table(
        {
            "time_ms": time_of(packed),
            "kind": pa.DictionaryArray.from_arrays(kind.astype(np.int8), KINDS),
            "subscriber": _nullable(one, is_result),
            "subscription": _nullable(np.where(is_result, one, other), is_session),
            "size": _nullable(other, ~is_result),
        }
    )


def _nullable(values: Ints, missing: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(values, mask=missing)
