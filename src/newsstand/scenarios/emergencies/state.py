"""What a running demo looks like at this moment, for the page and for the summary."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from newsstand.caching import RESULT_POLICIES
from newsstand.errors import NewsstandError
from newsstand.scenarios.emergencies.city import City
from newsstand.scenarios.emergencies.people import WINDOW_S, DemoStatistics, Person, Publishers

HISTORY_S = 120
RECENT_S = 10
"""Seconds over which the hit ratio of the history is taken, so that a change of policy shows."""

Json = dict[str, Any]


@dataclass(frozen=True)
class PlatformAddresses:
    """Where a platform is, and what its operator knows."""

    cluster: str
    cluster_token: str
    coordinator: str
    brokers: Sequence[str]
    operator: Sequence[str]
    """The operator's token at each broker."""


@dataclass
class State:
    """Asks all brokers once a second. `snapshot` may be called from any thread: it hands out what was made."""

    platform: PlatformAddresses
    publishers: Publishers
    people: Sequence[Person]
    statistics: DemoStatistics
    http: aiohttp.ClientSession
    duration_s: float | None

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._brokers: list[Json] = [{} for _ in self.platform.brokers]
        self._results = 0
        self._history: deque[Json] = deque(maxlen=HISTORY_S)
        self._requested: deque[tuple[int, int]] = deque([(0, 0)], maxlen=RECENT_S + 1)
        self._latest: Json = {}
        self._make()

    def begin(self) -> None:
        """Start the clock."""
        self._began = time.monotonic()
        self._history.clear()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return round(time.monotonic() - self._began, 1)

    def snapshot(self) -> Json:
        """Return the state of the last second, as JSON."""
        return self._latest

    async def switch(self, policy: str) -> None:
        """Give every broker another policy for its results."""
        name = RESULT_POLICIES[policy].name  # raises UnknownPolicy
        await asyncio.gather(*(self._put_policy(url, name) for url in self.platform.brokers))
        await self.look()

    async def watch(self, over: asyncio.Event) -> None:
        """Look once a second until it is over."""
        tick = 0
        while not over.is_set():
            await self.look()
            self._remember()
            tick += 1
            pause = self._began + tick - time.monotonic()
            if pause < 0:
                tick = int(time.monotonic() - self._began)
            await asyncio.sleep(max(0.05, pause))

    async def look(self) -> None:
        """Ask the brokers and the cluster; one that does not answer stays as it was."""
        stats = await asyncio.gather(*(self._stats(url) for url in self.platform.brokers))
        self._brokers = [new or old for new, old in zip(stats, self._brokers, strict=True)]
        self._results = await self._count_results()
        self._make()

    def totals(self) -> Json:
        """Return the counts of all brokers together, and of the people."""
        hits, misses = self._sum("hits"), self._sum("misses")
        return {
            "publications": self.statistics.publications,
            "results": self._results,
            "notifications": sum(one.get("notifications", 0) for one in self._brokers),
            "received": self.statistics.received,
            "hits": hits,
            "misses": misses,
            "hit_ratio": round(hits / (hits + misses), 4) if hits + misses else None,
            "fetched_bytes": self._sum("fetched_bytes"),
            "cached_bytes": self._sum("bytes"),
        }

    def pulled_bytes(self) -> int:
        """Return the bytes that brokers fetched from the cluster before a subscriber asked for them."""
        return self._sum("pulled_bytes")

    def notification_ms(self) -> dict[str, float | None]:
        """Return the latency from the webhook to the socket of a subscriber, of the slowest broker."""
        quantiles = [one.get("latency_ms", {}).get("notification") or {} for one in self._brokers]
        return {
            name: max((value for one in quantiles if (value := one.get(name)) is not None), default=None)
            for name in ("p50", "p99")
        }

    def _sum(self, name: str) -> int:
        return sum(int(one.get("results", {}).get(name, 0)) for one in self._brokers)

    def _make(self) -> None:
        now = time.monotonic()
        places = self.publishers.locations
        self._latest = {
            "now_ms": time.time_ns() // 1_000_000,
            "elapsed_s": self.elapsed_s,
            "duration_s": self.duration_s,
            "city": City.bounds(),
            "reports": [
                {key: report[key] for key in ("id", "kind", "lat", "lon", "severity")}
                | {"age_s": round(now - at, 1)}
                for at, report in reversed(self.publishers.reports)
            ],
            "shelters": list(self.publishers.shelters.values()),
            "users": [
                {"lat": places[one.name]["lat"], "lon": places[one.name]["lon"], "online": one.online}
                for one in self.people
            ],
            "brokers": [one for one in self._brokers if one],
            "totals": self.totals(),
            "latency_ms": {"notification": self.notification_ms(), "result": self.statistics.quantiles(WINDOW_S)},
            "history": list(self._history),
            "policies": list(RESULT_POLICIES),
            "policy": next((one["results"]["policy"] for one in self._brokers if one), None),
            "policy_titles": {name: policy.title for name, policy in RESULT_POLICIES.items()},
        }

    def _remember(self) -> None:
        totals = self.totals()
        self._requested.append((totals["hits"], totals["misses"]))
        hits, misses = (new - old for new, old in zip(self._requested[-1], self._requested[0], strict=True))
        self._history.append(
            {
                "t": round(time.monotonic() - self._began, 1),
                "publications": totals["publications"],
                "results": totals["results"],
                "hit_ratio": round(hits / (hits + misses), 4) if hits + misses > 0 else None,
                "cached_bytes": totals["cached_bytes"],
                "latency_p50": self.statistics.quantiles(RECENT_S)["p50"],
            }
        )

    async def _stats(self, url: str) -> Json:
        try:
            text = await self._get(f"{url}/stats", self._as_operator(url))
            return msgspec.json.decode(text, type=dict[str, Any])
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
            return {}

    async def _get(self, url: str, headers: dict[str, str]) -> str:
        timeout = aiohttp.ClientTimeout(total=5)
        async with self.http.get(url, headers=headers, timeout=timeout, raise_for_status=True) as response:
            return await response.text()

    async def _put_policy(self, url: str, policy: str) -> None:
        body, timeout = {"results": {"policy": policy}}, aiohttp.ClientTimeout(total=10)
        sending = self.http.put(f"{url}/policy", json=body, headers=self._as_operator(url), timeout=timeout)
        try:
            async with sending as response:
                if not response.ok:
                    raise NewsstandError(f"{url}: policy not changed: {await response.text()}")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NewsstandError(f"{url}: policy not changed: {error or type(error).__name__}") from error

    def _as_operator(self, url: str) -> dict[str, str]:
        return _bearer(self.platform.operator[list(self.platform.brokers).index(url)])

    async def _count_results(self) -> int:
        try:
            text = await self._get(f"{self.platform.cluster}/metrics", _bearer(self.platform.cluster_token))
        except (aiohttp.ClientError, TimeoutError):
            return self._results
        found = re.findall(r"^newsstand_results_total\{[^}]*\} (\S+)$", text, re.M)
        return sum(int(float(count)) for count in found) if found else self._results


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
