"""Verdicts on the prototype's claims from given measurements, and the files written."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from newsstand.lab.papers.bad2018.prototype import (
    COLUMNS,
    POLICIES,
    PrototypeMeasurements,
    prototype_claims,
    write_prototype,
)

SIZES = (25_000, 100_000, 400_000)
HIT = {25_000: 0.5, 100_000: 0.7, 400_000: 0.9}
LEAD = {"lru": 0.0, "lsc": 0.05, "lscz": 0.01, "lsd": 0.01, "exp": -0.02, "ttl": 0.06}


def row(policy: str, budget: int, hit_ratio: float, delay_ms: float = 0.0) -> dict[str, Any]:
    """What a broker with such a hit ratio would have: 4 ms for a hit, 20 for a miss, and the delay."""
    counts = dict.fromkeys(COLUMNS, 0)
    return counts | {
        "play": "one",
        "policy": policy,
        "budget": budget,
        "delay_ms": delay_ms,
        "cap_s": 3600.0,
        "hit_ratio": hit_ratio,
        "hit_ratio_online": hit_ratio,
        "hit_ratio_late": hit_ratio / 2,
        "latency_ms": 4 + (16 + delay_ms) * (1 - hit_ratio),
        "cluster_wait_ms": (16 + delay_ms) * (1 - hit_ratio),
        "fetched_bytes": round(10_000_000 * (1 - hit_ratio)) + (0 if policy == "nc" else 900_000),
    }


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    """The paper's world."""
    near = [row(policy, size, HIT[size] + LEAD[policy]) for policy in POLICIES for size in SIZES]
    short = row("ttl", 100_000, 0.2) | {"cap_s": 300.0}
    return [row("nc", 0, 0.0), short, *near, row("nc", 0, 0.0, 500), row("lsc", 100_000, 0.75, 500)]


def failing(rows: list[dict[str, Any]]) -> set[str]:
    judged = prototype_claims(PrototypeMeasurements(rows))
    assert len({claim.id for claim in judged}) == len(judged)
    assert all(claim.text and claim.paper and claim.measured for claim in judged)
    return {claim.id for claim in judged if not claim.holds}


def test_claims_hold_in_world_of_paper(rows: list[dict[str, Any]]) -> None:
    assert failing(rows) == set()
    assert len(prototype_claims(PrototypeMeasurements(rows))) == 10


@pytest.mark.parametrize(
    ("policy", "size", "what", "value", "refuted"),
    [
        ("exp", 25_000, "latency_ms", 21.0, {"VI-cache-latency"}),
        ("exp", 25_000, "fetched_bytes", 11_000_000, {"VI-cache-bytes"}),
        ("lsd", 400_000, "hit_ratio", 0.69, {"VI-size-hit-ratio"}),
        ("lscz", 400_000, "latency_ms", 8.9, {"VI-size-latency"}),
        ("lscz", 400_000, "fetched_bytes", 4_000_000, {"VI-size-traffic"}),
        ("lru", 400_000, "hit_ratio", 0.948, {"VI-lsc-lru"}),
        ("lscz", 25_000, "hit_ratio", 0.57, {"VI-ttl-small"}),
        ("exp", 100_000, "hit_ratio", 0.49, {"VI-100KB-hit-ratio"}),
        ("exp", 100_000, "latency_ms", 12.2, {"VI-100KB-latency"}),
    ],
)
def test_claims_are_refuted_by_contrary_measurements(
    rows: list[dict[str, Any]], policy: str, size: int, what: str, value: float, refuted: set[str]
) -> None:
    (one,) = (
        row
        for row in rows
        if (row["policy"], row["budget"], row["delay_ms"], row["cap_s"]) == (policy, size, 0, 3600)
    )
    one[what] = value
    assert failing(rows) == refuted


def test_size_claims_require_two_sizes(rows: list[dict[str, Any]]) -> None:
    one_size = [one for one in rows if one["budget"] in (0, 100_000)]
    judged = {claim.id for claim in prototype_claims(PrototypeMeasurements(one_size))}
    assert {one.id for one in prototype_claims(PrototypeMeasurements(rows))} - judged == {
        "VI-size-hit-ratio",
        "VI-size-latency",
        "VI-size-traffic",
    }


def test_far_cluster_is_judged_by_itself(rows: list[dict[str, Any]]) -> None:
    rows[-1]["latency_ms"] = 400.0
    assert failing(rows) == {"VI-100KB-latency-far"}
    near = [one for one in rows if not one["delay_ms"]]
    assert {claim.id for claim in prototype_claims(PrototypeMeasurements(near))} == {
        claim.id for claim in prototype_claims(PrototypeMeasurements(rows)) if claim.id != "VI-100KB-latency-far"
    }


def test_cache_is_compared_with_nc_of_same_play(rows: list[dict[str, Any]]) -> None:
    busy = [
        one | {"play": "busy", "latency_ms": 3 * one["latency_ms"]}
        for one in rows
        if one["budget"] in (0, 400_000)
    ]
    measured = PrototypeMeasurements([one for one in rows if one["budget"] != 400_000] + busy)
    assert measured.of("latency_ms", "nc") == 40
    assert measured.sizes == list(SIZES)
    assert measured.share("latency_ms", "lsc", 400_000) == pytest.approx(4.8 / 20)
    assert "VI-size-latency" not in {claim.id for claim in prototype_claims(measured) if not claim.holds}


def test_tables_figures_and_report_are_written(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    rows[2]["hit_ratio_late"] = None  # nobody was late there
    result = write_prototype(rows, "Played in a test.", "newsstand reproduce bad2018", tmp_path)
    json.dumps(result, allow_nan=False)
    with (tmp_path / "tables" / "prototype.csv").open(newline="") as lines:
        assert len(list(csv.DictReader(lines))) == len(rows)
    for name in ("fig7", "late"):
        assert "<svg" in (tmp_path / "figures" / f"{name}.svg").read_text()
        assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "report.html").read_text()
    assert "Played in a test." in page
    assert page.count("<svg") == 2
    assert "With 500 ms between broker and cluster" in page
