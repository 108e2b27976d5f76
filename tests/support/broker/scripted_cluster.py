"""A data cluster in memory, as a broker's `ClusterClient` sees it, with the failures that a test sets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence

from newsstand.broker.cluster_client.client import ClusterUnavailable
from newsstand.broker.results.broker import PositionRange
from newsstand.errors import BadValues, NewsstandError, NotFound, ResultsExpired
from newsstand.model import ChannelDefinition, Parameter, subscription_id
from newsstand.wire.cluster import FetchedResult, StreamStatus, SubscribeRequest


class ScriptedCluster:
    """Keeps streams as lists of payloads; `failing` are errors for the next calls, whatever they are."""

    def __init__(self, broker: str = "edge") -> None:
        self.broker = broker
        self.is_up = True
        self.failing: list[NewsstandError] = []
        self.calls: list[str] = []
        self.registered = True
        self.streams: dict[str, list[object]] = {}
        self.removed: dict[str, int] = {}
        self.frontends: dict[str, int] = {}
        self.rejected: set[str] = set()
        """Channels that it does not take."""
        self.gate = asyncio.Event()
        """Reads wait for it."""
        self.gate.set()
        self.known = {"of_kind": channel("of_kind")}

    def stream(self, kind: str, channel: str = "of_kind") -> str:
        return subscription_id(channel, [kind], self.broker)

    def print(self, kind: str, *payloads: object) -> int:
        stream = self.streams.setdefault(self.stream(kind), [])
        stream += payloads
        return len(stream)

    def forget(self) -> None:
        """As if it had never heard of the broker."""
        self.registered = False
        self.frontends.clear()

    async def register(self) -> bool:
        new, self.registered = not self.registered, True
        return new

    async def channels(self) -> dict[str, ChannelDefinition]:
        self._called("channels")
        return dict(self.known)

    async def subscribe(self, wanted: Sequence[SubscribeRequest]) -> list[tuple[str, StreamStatus]]:
        self._called(f"subscribe {len(wanted)}")
        if any(one.channel in self.rejected for one in wanted):
            raise BadValues("one of these is not good")
        answers = []
        for one in wanted:
            key = subscription_id(one.channel, one.values, self.broker)
            self.frontends[key] = one.frontends
            answers.append((key, StreamStatus(len(self.streams.get(key, [])), self.removed.get(key, 0) + 1)))
        return answers

    async def drop(self, ids: Sequence[str]) -> None:
        self._called(f"drop {len(ids)}")
        for key in ids:
            self.frontends.pop(key, None)

    async def subscriptions(self) -> AsyncIterator[str]:
        self._called("subscriptions")
        for key in list(self.frontends):
            yield key

    async def read(self, spans: Mapping[str, PositionRange]) -> dict[str, list[FetchedResult] | Exception]:
        self._called(f"read {len(spans)}")
        await self.gate.wait()
        found: dict[str, list[FetchedResult] | Exception] = {}
        for key, span in spans.items():
            removed = self.removed.get(key, 0)
            if key not in self.frontends:
                found[key] = ClusterUnavailable("the data cluster does not know the stream")
            elif span.after < removed:
                found[key] = ResultsExpired(removed + 1)
            else:
                payloads = self.streams.get(key, [])[span.after : span.until]
                found[key] = [result(span.after + n, one) for n, one in enumerate(payloads, 1)]
        return found

    def _called(self, what: str) -> None:
        self.calls.append(what)
        if self.failing:
            raise self.failing.pop(0)
        if not self.registered and what != "channels":
            raise NotFound(f"no broker '{self.broker}'")


def result(position: int, payload: object) -> FetchedResult:
    return FetchedResult(position, 0, b'{"position":%d,"payload":%b' % (position, json.dumps(payload).encode()))


def channel(name: str) -> ChannelDefinition:
    return ChannelDefinition(name, "", "", (Parameter("kind", "string"),), None)
