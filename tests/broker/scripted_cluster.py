"""A data cluster in memory, as a broker's `Upstream` sees it, that does what a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence

from newsstand.broker.broker import Span
from newsstand.broker.fetches import Fetched
from newsstand.broker.upstream import Away, Gone, Standing, Wanted
from newsstand.errors import BadValues, NewsstandError, NotFound
from newsstand.model import Channel, Parameter, subscription_id


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
        self.refused: set[str] = set()
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

    async def channels(self) -> dict[str, Channel]:
        self._called("channels")
        return dict(self.known)

    async def subscribe(self, wanted: Sequence[Wanted]) -> list[tuple[str, Standing]]:
        self._called(f"subscribe {len(wanted)}")
        if any(one.channel in self.refused for one in wanted):
            raise BadValues("one of these is not good")
        answers = []
        for one in wanted:
            key = subscription_id(one.channel, one.values, self.broker)
            self.frontends[key] = one.frontends
            answers.append((key, Standing(len(self.streams.get(key, [])), self.removed.get(key, 0) + 1)))
        return answers

    async def drop(self, ids: Sequence[str]) -> None:
        self._called(f"drop {len(ids)}")
        for key in ids:
            self.frontends.pop(key, None)

    async def subscriptions(self) -> AsyncIterator[str]:
        self._called("subscriptions")
        for key in list(self.frontends):
            yield key

    async def read(self, spans: Mapping[str, Span]) -> dict[str, list[Fetched] | Exception]:
        self._called(f"read {len(spans)}")
        await self.gate.wait()
        found: dict[str, list[Fetched] | Exception] = {}
        for key, span in spans.items():
            removed = self.removed.get(key, 0)
            if key not in self.frontends:
                found[key] = Away("the data cluster does not know the stream")
            elif span.after < removed:
                found[key] = Gone(removed + 1)
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


def result(position: int, payload: object) -> Fetched:
    return Fetched(position, 0, b'{"position":%d,"payload":%b' % (position, json.dumps(payload).encode()))


def channel(name: str) -> Channel:
    return Channel(name, "", "", (Parameter("kind", "string"),), None)
