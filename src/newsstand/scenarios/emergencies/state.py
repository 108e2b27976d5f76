"""What a running demo looks like at this moment, for the page and for the summary."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from newsstand.caching import RESULT_POLICIES
from newsstand.errors import NewsstandError
from newsstand.scenarios.emergencies.city import City
from newsstand.scenarios.emergencies.people import Person
from newsstand.scenarios.emergencies.publishers import Publishers
from newsstand.scenarios.emergencies.tally import WINDOW_S, Tally

HISTORY_S = 120
RECENT_S = 10
"""The hit ratio of the history is that of so many seconds, so that a change of policy shows."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Platform:
    """Where a platform is, and what its operator knows."""

    cluster: str
    cluster_token: str
    coordinator: str
    brokers: Sequence[str]
    operator: Sequence[str]
    """The operator's token at each broker."""


class State:
    """Asks all brokers once a second. `snapshot` may be called from any thread: it hands out what was made."""

    def __init__(
        self,
        platform: Platform,
        publishers: Publishers,
        people: Sequence[Person],
        tally: Tally,
        http: httpx.AsyncClient,
        duration_s: float | None,
    ) -> None:
        self._platform = platform
        self._publishers = publishers
        self._people = people
        self._tally = tally
        self._http = http
        self._duration_s = duration_s
        self._began = time.monotonic()
        self._brokers: list[Json] = [{} for _ in platform.brokers]
        self._results = 0
        self._history: deque[Json] = deque(maxlen=HISTORY_S)
        self._asked: deque[tuple[int, int]] = deque([(0, 0)], maxlen=RECENT_S + 1)
        self._latest: Json = {}
        self._make()

    def begin(self) -> None:
        """The clock starts now."""
        self._began = time.monotonic()
        self._history.clear()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return round(time.monotonic() - self._began, 1)

    def snapshot(self) -> Json:
        """The state of the last second, as JSON."""
        return self._latest

    async def switch(self, policy: str) -> None:
        """Give every broker another policy for its results."""
        name = RESULT_POLICIES[policy].name  # raises UnknownPolicy
        answers = await asyncio.gather(
            *(self._put_policy(url, name) for url in self._platform.brokers), return_exceptions=True
        )
        for url, answer in zip(self._platform.brokers, answers, strict=True):
            if isinstance(answer, BaseException) or answer.is_error:
                told = str(answer) if isinstance(answer, BaseException) else answer.text
                raise NewsstandError(f"{url}: the policy was not changed: {told}")
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
        """Ask the brokers and the cluster; who does not answer stays as it was."""
        told = await asyncio.gather(*(self._stats(url) for url in self._platform.brokers))
        self._brokers = [new or old for new, old in zip(told, self._brokers, strict=True)]
        self._results = await self._count_results()
        self._make()

    def totals(self) -> Json:
        """What all brokers did together, and the players."""
        hits, misses = self._sum("hits"), self._sum("misses")
        return {
            "publications": self._tally.publications,
            "results": self._results,
            "notifications": sum(one.get("notifications", 0) for one in self._brokers),
            "received": self._tally.received,
            "hits": hits,
            "misses": misses,
            "hit_ratio": round(hits / (hits + misses), 4) if hits + misses else None,
            "fetched_bytes": self._sum("fetched_bytes"),
            "cached_bytes": self._sum("bytes"),
        }

    def pulled_bytes(self) -> int:
        """What brokers took from the cluster to have it in their caches before anybody asks."""
        return self._sum("pulled_bytes")

    def notification_ms(self) -> dict[str, float | None]:
        """From the webhook of the cluster to the socket of a subscriber: the slowest broker."""
        told = [one.get("latency_ms", {}).get("notification") or {} for one in self._brokers]
        return {
            name: max((value for one in told if (value := one.get(name)) is not None), default=None)
            for name in ("p50", "p99")
        }

    def _sum(self, name: str) -> int:
        return sum(int(one.get("results", {}).get(name, 0)) for one in self._brokers)

    def _make(self) -> None:
        now = time.monotonic()
        places = self._publishers.locations
        self._latest = {
            "now_ms": time.time_ns() // 1_000_000,
            "elapsed_s": self.elapsed_s,
            "duration_s": self._duration_s,
            "city": City.bounds(),
            "reports": [
                {key: report[key] for key in ("id", "kind", "lat", "lon", "severity")}
                | {"age_s": round(now - at, 1)}
                for at, report in reversed(self._publishers.reports)
            ],
            "shelters": list(self._publishers.shelters.values()),
            "users": [
                {"lat": places[one.name]["lat"], "lon": places[one.name]["lon"], "online": one.online}
                for one in self._people
            ],
            "brokers": [one for one in self._brokers if one],
            "totals": self.totals(),
            "latency_ms": {"notification": self.notification_ms(), "result": self._tally.quantiles(WINDOW_S)},
            "history": list(self._history),
            "policies": list(RESULT_POLICIES),
            "policy": next((one["results"]["policy"] for one in self._brokers if one), None),
            "policy_titles": {name: policy.title for name, policy in RESULT_POLICIES.items()},
        }

    def _remember(self) -> None:
        totals = self.totals()
        self._asked.append((totals["hits"], totals["misses"]))
        hits, misses = (new - old for new, old in zip(self._asked[-1], self._asked[0], strict=True))
        self._history.append(
            {
                "t": round(time.monotonic() - self._began, 1),
                "publications": totals["publications"],
                "results": totals["results"],
                "hit_ratio": round(hits / (hits + misses), 4) if hits + misses > 0 else None,
                "cached_bytes": totals["cached_bytes"],
                "latency_p50": self._tally.quantiles(RECENT_S)["p50"],
            }
        )

    async def _stats(self, url: str) -> Json:
        try:
            answer = await self._http.get(f"{url}/stats", headers=self._as_operator(url), timeout=5)
            told: Json = answer.json() if answer.is_success else {}
        except (httpx.HTTPError, ValueError):
            return {}
        return told

    async def _put_policy(self, url: str, policy: str) -> httpx.Response:
        return await self._http.put(
            f"{url}/policy",
            json={"results": {"policy": policy}},
            headers=self._as_operator(url),
            timeout=10,
        )

    def _as_operator(self, url: str) -> dict[str, str]:
        return _bearer(self._platform.operator[list(self._platform.brokers).index(url)])

    async def _count_results(self) -> int:
        try:
            answer = await self._http.get(
                f"{self._platform.cluster}/metrics", headers=_bearer(self._platform.cluster_token), timeout=5
            )
        except httpx.HTTPError:
            return self._results
        found = re.findall(r"^newsstand_results_total\{[^}]*\} (\S+)$", answer.text, re.M)
        return sum(int(float(count)) for count in found) if found else self._results


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
