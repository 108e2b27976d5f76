"""Small tables of broker events in which much coincides."""

from __future__ import annotations

Row = tuple[int, str, int, int, int]

OFTEN = ["result"] * 9 + ["login"] * 3 + ["logout"] * 3 + ["subscribe"] * 4 + ["unsubscribe"]
STEPS = [0, 0, 0, 1, 1, 2, 5, 10]
SIZES = [1, 2, 3, 10, 10_000, 30_000]


def table(choices: bytes, scale: int) -> list[Row]:
    """Few subscribers, caches, sizes and moments: scores tie, and rows fall on the instants of others."""
    rows, time = [], 0
    for kind, who, which, step in zip(*[iter(choices)] * 4, strict=False):
        time += STEPS[step % len(STEPS)] * scale
        rows.append((time, OFTEN[kind % len(OFTEN)], who % 4, which % 3, SIZES[(who // 4) % len(SIZES)]))
    return rows
