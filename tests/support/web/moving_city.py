"""A city whose every second is scripted: what the page shows moves by one second with each look at it."""

from __future__ import annotations

import math
import random

from newsstand.caching import RESULT_POLICIES

KINDS = ("accident", "fire", "flood", "storm", "shooting", "gas_leak", "earthquake", "tornado")
NORTH, SOUTH, EAST, WEST = 33.815, 33.545, -117.668, -117.992
HIT_RATIOS = {"nc": 0.0, "lru": 0.55, "lsc": 0.78, "lscz": 0.82, "lsd": 0.8, "exp": 0.66, "ttl": 0.9}
BUDGET = 4_000_000


class MovingCity:
    """Emergencies, people and three brokers; a DashboardState without a platform behind it."""

    def __init__(self, seconds: int = 0, duration_s: float | None = 600) -> None:
        self.seconds = 0
        self.duration_s = duration_s
        self.policy = "lru"
        self.switched: list[str] = []
        self._hit_ratio = 0.2
        self._random = random.Random(7)
        self._reports: list[dict[str, object]] = []
        self._history: list[dict[str, object]] = []
        self._homes = [self._somewhere() for _ in range(300)]
        self._shelters = [self._somewhere() for _ in range(24)]
        for _ in range(seconds):
            self._live()

    async def switch(self, policy: str) -> None:
        self.policy = RESULT_POLICIES[policy].name
        self.switched.append(policy)

    def snapshot(self) -> dict[str, object]:
        self._live()
        second = self.seconds
        hits = round(second * 40 * self._hit_ratio)
        return {
            "now_ms": 1_800_000_000_000 + 1000 * second,
            "elapsed_s": second,
            "duration_s": self.duration_s,
            "city": {"north": NORTH, "south": SOUTH, "east": EAST, "west": WEST},
            "reports": [
                {key: value for key, value in report.items() if key != "born"}
                | {"age_s": second - int(str(report["born"]))}
                for report in self._reports
            ],
            "shelters": [
                {"id": f"s{number}", "name": f"Shelter {number}", "lat": lat, "lon": lon, "places": 20 * number}
                for number, (lat, lon) in enumerate(self._shelters)
            ],
            "users": [self._user(number) for number in range(len(self._homes))],
            "brokers": [self._broker(number) for number in range(3)],
            "totals": {
                "publications": 6 * second,
                "results": 48 * second,
                "notifications": 31 * second,
                "received": 46 * second,
                "hits": hits,
                "misses": 40 * second - hits,
                "hit_ratio": self._hit_ratio,
                "fetched_bytes": 61_000 * second,
                "cached_bytes": self._cached(),
            },
            "latency_ms": {
                "notification": {"p50": 4.2 + second % 3, "p99": 31.0 + second % 7},
                "result": {"p50": self._latency(), "p99": 3 * self._latency()},
            },
            "history": self._history[-300:],
            "policies": list(RESULT_POLICIES),
            "policy": self.policy,
            "policy_titles": {name: policy.title for name, policy in RESULT_POLICIES.items()},
        }

    def report(self, kind: str) -> None:
        lat, lon = self._somewhere()
        self._reports.append(
            {"id": f"r{self.seconds}-{kind}", "kind": kind, "lat": lat, "lon": lon}
            | {"severity": self._random.randint(1, 5), "born": self.seconds}
        )

    def _live(self) -> None:
        self.seconds += 1
        second = self.seconds
        wanted = HIT_RATIOS.get(self.policy, 0.85)
        self._hit_ratio += 0.06 * (wanted - self._hit_ratio) + 0.01 * math.sin(second / 3)
        self._hit_ratio = min(1.0, max(0.0, self._hit_ratio))
        if second % 4 == 1:
            self.report(self._random.choices(KINDS, range(len(KINDS), 0, -1))[0])
        self._reports = [report for report in self._reports if second - int(str(report["born"])) < 150]
        self._history.append(
            {"t": second, "publications": 6 * second, "results": 48 * second, "hit_ratio": self._hit_ratio}
            | {"cached_bytes": self._cached(), "latency_p50": self._latency()}
        )

    def _user(self, number: int) -> dict[str, object]:
        lat, lon = self._homes[number]
        turn = self.seconds / 20 + number
        return {
            "lat": lat + 0.01 * math.sin(turn),
            "lon": lon + 0.01 * math.cos(turn),
            "online": (number + self.seconds // 15) % 4 > 0,
        }

    def _broker(self, number: int) -> dict[str, object]:
        hits = round(self.seconds * 13 * self._hit_ratio)
        return {
            "broker": ("harbour", "old-town", "university")[number],
            "now_ms": 1_800_000_000_000,
            "connections": 60 + 15 * number + self.seconds % 9,
            "subscribers": 100,
            "frontends": 320,
            "backends": 80,
            "results": {"policy": self.policy, "budget": BUDGET, "bytes": self._cached() // (3 + number)}
            | {"objects": 300, "hits": hits, "misses": 13 * self.seconds - hits},
            "pages": {"policy": "gdsf", "capacity": BUDGET, "bytes": 0, "objects": 0, "hits": 0, "misses": 0},
            "latency_ms": {"notification": {"p50": 4, "p99": 30}, "results": {"p50": 9, "p99": 40}},
            "notifications": 10 * self.seconds,
            "cluster": "up",
            "coordinator": "up",
        }

    def _cached(self) -> int:
        if self.policy == "nc":
            return 0
        return round(3 * BUDGET * (1 - math.exp(-self.seconds / 60)) * (0.93 + 0.05 * math.sin(self.seconds / 5)))

    def _latency(self) -> float:
        return round(8 + 60 * (1 - self._hit_ratio) + 3 * math.sin(self.seconds / 4), 1)

    def _somewhere(self) -> tuple[float, float]:
        return self._random.uniform(SOUTH, NORTH), self._random.uniform(WEST, EAST)
