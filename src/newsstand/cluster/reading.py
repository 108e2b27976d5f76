"""Reading many streams in one call, within a limit of results and of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from newsstand.cluster.results import Gone, Results, Suspended
from newsstand.model import Result

MOST_RESULTS = 10_000
MOST_BYTES = 8 * 1024 * 1024
Position = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Results of a subscription with after < position <= until; a limit of 0 asks only where its stream stands."""

    subscription: str
    after: Position = 0
    until: Position | None = None
    limit: Annotated[int, msgspec.Meta(ge=0, le=MOST_RESULTS)] = 1000


@dataclass(frozen=True)
class Slice:
    """What was found: fewer results than there are if the call has no room for more."""

    subscription: str
    results: Sequence[Result]
    head: int
    earliest: int
    suspended: Suspended | None = None


def read_all(results: Results, broker: str, asked: Sequence[Asked]) -> list[Slice]:
    """The slices of those subscriptions that the broker has, in the order of the question."""
    standings = results.standings(broker, [one.subscription for one in asked])
    suspended = {one.subscription: one for one in results.suspended(broker, subscriptions=list(standings))}
    slices: list[Slice] = []
    count, size = MOST_RESULTS, MOST_BYTES
    for one in asked:
        standing = standings.get(one.subscription)
        if standing is None:
            continue
        found: list[Result] = []
        if one.limit and count > 0 and size > 0 and standing.head > one.after:
            try:
                found = results.read(standing.stream, one.after, one.until, min(one.limit, count))
            except Gone:
                found = []  # `earliest` tells
            count -= len(found)
            size -= sum(len(result.payload) for result in found)
        slices.append(
            Slice(one.subscription, found, standing.head, standing.earliest, suspended.get(one.subscription))
        )
    return slices
