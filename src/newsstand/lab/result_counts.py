"""What a replay of broker events counts, and the measures that follow from the counts."""

from __future__ import annotations

from dataclasses import asdict, dataclass

Measured = int | float | str | list[float] | None


@dataclass(slots=True)
class ResultCounts:
    """Everything that is counted as events pass; times in milliseconds, sizes in bytes."""

    results: int = 0
    orphans: int = 0
    """Results of subscriptions that nobody had."""
    ignored_events: int = 0
    """Rows that ask for what is so already."""
    vol_bytes: int = 0
    hits: int = 0
    hit_bytes: int = 0
    misses: int = 0
    miss_bytes: int = 0
    hits_push: int = 0
    misses_push: int = 0
    dropped_objects: int = 0
    dropped_bytes: int = 0
    hold_dropped_ms: int = 0
    consumed_objects: int = 0
    consumed_bytes: int = 0
    hold_consumed_ms: int = 0
    abandoned_objects: int = 0
    abandoned_bytes: int = 0
    hold_abandoned_ms: int = 0
    left_objects: int = 0
    left_bytes: int = 0
    undelivered: int = 0
    pending_end: int = 0
    ttl_insert_ms: int = 0
    max_bytes: int = 0
    max_bytes_warm: int = 0
    size_integral: int = 0
    size_integral_warm: int = 0

    def measures(self, *, end_ms: int, window_ms: int) -> dict[str, Measured]:
        """The counts and what follows from them, by their names; a ratio of nothing is None."""
        retrieved = self.hits + self.misses
        removed = self.dropped_objects + self.consumed_objects + self.abandoned_objects
        held_ms = self.hold_dropped_ms + self.hold_consumed_ms + self.hold_abandoned_ms
        # In units of 0.1 us: 0.25 s and 1 MB/s from the broker, for a miss 0.5 s and 10 MB/s on top.
        latency = 2_500_000 * retrieved + 10 * (self.hit_bytes + self.miss_bytes)
        latency += 5_000_000 * self.misses + self.miss_bytes
        return {
            **asdict(self),
            "fetch_bytes": self.vol_bytes + self.miss_bytes,
            "lat_e7": latency,
            "avg_bytes": _ratio(self.size_integral, end_ms),
            "avg_bytes_warm": _ratio(self.size_integral_warm, max(0, end_ms - window_ms)),
            "hit_ratio": _ratio(self.hits, retrieved),
            "mean_hold_dropped_s": _ratio(self.hold_dropped_ms, 1000 * self.dropped_objects),
            "mean_hold_s": _ratio(held_ms, 1000 * removed),
            "mean_latency_s": _ratio(latency, 10_000_000 * retrieved),
            "mean_ttl_insert_s": _ratio(self.ttl_insert_ms, 1000 * (removed + self.left_objects)),
        }


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
