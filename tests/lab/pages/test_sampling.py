"""Hit ratios estimated from a sample of the pages are as far from the exact ones as they say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from support.lab import tables

from newsstand.cli.main import run
from newsstand.lab.pages import spark as on_spark
from newsstand.lab.pages.local import simulate
from newsstand.lab.pages.sampling import GROUPS, estimate, sampled, share_for
from newsstand.lab.pages.sweep import curve_capacities, plan
from newsstand.lab.pages.timeline import Timeline, timeline
from newsstand.workload.oracle_file import write_oracle_general
from newsstand.workload.trace.columns import (
    PublicationColumns,
    RequestColumns,
    SubscriptionColumns,
    TraceColumns,
)
from newsstand.workload.trace.folder import read_trace
from newsstand.workload.trace.folder_columns import read_folder_columns

POLICIES = ("lru", "sieve", "gdsf", "s3-fifo", "w-tinylfu", "sr", "dc-lap")
PAGES = 40_000


def drawn(seed: int, requests: int = 300_000, proxies: int = 1) -> TraceColumns:
    """Pages by Zipf's law with log-normal sizes; some have subscriptions."""
    draw = np.random.default_rng(seed)
    reached = np.cumsum(np.arange(1, PAGES + 1) ** -0.9)
    rank = np.searchsorted(reached, draw.random(requests) * reached[-1]).clip(max=PAGES - 1)
    size = np.maximum(1, draw.lognormal(9.357, 1.318, PAGES)).astype(np.int64)
    subscribed = draw.choice(PAGES, PAGES // 3, replace=False)
    return TraceColumns(
        "drawn",
        RequestColumns(
            np.sort(draw.random(requests) * 1e6),
            draw.integers(0, proxies, requests, dtype=np.int32),
            draw.permutation(PAGES)[rank],
        ),
        PublicationColumns(np.arange(PAGES), np.sort(draw.random(PAGES) * 1e5), size),
        SubscriptionColumns(
            draw.integers(0, proxies, len(subscribed), dtype=np.int32),
            subscribed,
            draw.integers(1, 9, len(subscribed), dtype=np.int32),
        ),
    )


def test_exact_hit_ratio_is_within_error() -> None:
    errors, differences = [], []
    for seed in range(3):
        trace = drawn(seed, requests=220_000)
        wanted, job = plan(POLICIES, curve_capacities(8), [2.0])
        exact = simulate(trace, wanted, job)
        for found, wanted_one in zip(simulate(trace, wanted, replace(job, sample=0.3)), exact, strict=True):
            differences.append(abs(float(str(found["hit_ratio"])) - float(str(wanted_one["hit_ratio"]))))
            errors.append(float(str(found["hit_ratio_error"])))
            assert found["requests"] == wanted_one["requests"]
            assert found["cache_bytes"] == wanted_one["cache_bytes"]
            assert found["pushed_bytes_always"] == wanted_one["pushed_bytes_always"]
    assert np.mean(np.array(differences) <= np.array(errors)) >= 0.9
    assert np.mean(differences) < 0.02
    assert np.mean(errors) < 8 * np.mean(differences)  # an error that is far too large would say nothing


def test_sample_of_all_pages_is_exact() -> None:
    trace = drawn(1, requests=20_000)
    wanted, job = plan(["lru", "sr"], ["0.05"], [2.0])
    exact = simulate(trace, wanted, job)
    assert simulate(trace, wanted, replace(job, sample=1.0)) == exact
    assert simulate(trace, wanted, replace(job, sample=None)) == exact


def page_sizes(part: Timeline, proxy: int) -> tuple[list[int], list[bool]]:
    """The size of the page of each event, which names the page here, and whether the event is a push."""
    events = part.events[part.event_offset[proxy] : part.event_offset[proxy + 1]]
    sizes = part.sizes[part.page_offset[proxy] : part.page_offset[proxy + 1]]
    return sizes[np.where(events < 0, ~events, events)].tolist(), (events < 0).tolist()


def test_sample_has_all_events_of_its_pages() -> None:
    draw, requests = np.random.default_rng(5), 30_000
    pages, is_push = draw.integers(0, 3_000, requests), draw.random(requests) < 0.2
    offset = np.array([0, 9_000, 9_000, requests])
    whole = timeline(
        np.array([-4, 0, 7], np.int32), offset, pages, is_push, pages + 1, np.ones(requests, np.int64)
    )
    sample, *groups = sampled(whole, 0.25)
    assert [part.part for part in (sample, *groups)] == list(range(GROUPS + 1))
    for proxy in range(3):
        listed, pushed = page_sizes(whole, proxy)
        sampled_pages = set(page_sizes(sample, proxy)[0])
        assert len(sampled_pages) == pytest.approx(0.25 * len(set(listed)), rel=0.15)
        grouped = [set(page_sizes(group, proxy)[0]) for group in groups]
        assert sum(map(len, grouped)) == len(set().union(*grouped)) == len(sampled_pages)
        for part, chosen in zip((sample, *groups), (sampled_pages, *grouped), strict=True):
            kept = [event for event in zip(listed, pushed, strict=True) if event[0] in chosen]
            assert list(zip(*page_sizes(part, proxy), strict=True)) == kept


def test_error_grows_with_deviation_of_groups() -> None:
    alike, apart = ([50 + step * sign for sign in (-1, 1) * 4] for step in (1, 5))
    assert estimate(0.1, 10_000, 400, apart).error == pytest.approx(5 * estimate(0.1, 10_000, 400, alike).error)
    # The groups miss more in their smaller caches: the sample may, too.
    assert estimate(0.1, 10_000, 400, [57] * GROUPS).error == pytest.approx(0.056 / 7)


def test_share_is_as_large_as_needed() -> None:
    assert share_for(pages=10_000_000, proxies=1) == 0.01
    assert share_for(pages=1_000_000, proxies=1) == 0.1
    assert share_for(pages=100_000, proxies=1) == 1
    assert share_for(pages=1_000_000, proxies=100) == 1


def test_estimates_are_the_same_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    pages = draw.permutation(6_000)
    rows: tables.Tables = {
        "publications": [(int(page), 0.0, int(draw.integers(1, 999))) for page in pages],
        "requests": [(float(time), int(draw.integers(2)), int(draw.choice(pages))) for time in range(12_000)],
        "subscriptions": [(1, int(page), 2) for page in pages[:2_000]],
    }
    folder = tables.write(tmp_path, rows, "parquet")
    wanted, job = plan(["lru", "sr"], ["0.05", "0.3"], [2.0], cache_bytes=[100_000])
    for share in (0.4, None):
        sampling = replace(job, sample=share)
        expected = on_spark.simulate(spark, read_trace(spark, folder), wanted, sampling)
        assert simulate(read_folder_columns(folder), wanted, sampling) == expected


def test_command_prints_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(3)
    pages = draw.integers(0, 30_000, 60_000)
    file = tmp_path / "drawn.oracleGeneral"
    write_oracle_general(file, np.arange(60_000), pages, pages + 1)
    words = ["simulate", str(file), "--policy", "lru", "--curve", "3"]
    assert run([*words, "--sample", "0.2", "--figure", str(tmp_path / "curve.svg")]) == 0
    titles, *rows, last = capsys.readouterr().out.splitlines()
    assert titles.split()[5:9] == ["hit", "ratio", "error", "fetched"]
    assert [row.split()[1] for row in rows] == ["0.001", "0.0316", "1"]
    assert all(row.split()[5].startswith("±0.") for row in rows)
    assert last.startswith("estimated from 20.00% of the pages")
    assert run([*words, "--json"]) == 0
    exact = json.loads(capsys.readouterr().out)
    assert [one["capacity"] for one in exact] == [0.001, 0.0316, 1.0]
    assert not any("hit_ratio_error" in one for one in exact)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--curve 20 --capacity 0.1", "--curve: chooses the sizes; leave out --capacity and --cache-bytes"),
        ("--curve 20 --cache-bytes 9", "--curve: chooses the sizes; leave out --capacity and --cache-bytes"),
        ("--curve 1", "Invalid value for '--curve'"),
        ("--sample 0", "--sample 0: is outside (0, 1]"),
        ("--sample 0.5 --hourly", "--per-proxy and --hourly count all pages: give --sample 1"),
        ("--curve 5 --per-proxy", "--per-proxy and --hourly count all pages: give --sample 1"),
        ("--sample 0.5", "--sample 0.5: gives"),
    ],
)
def test_mistake_is_one_line(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", str(tables.VECTORS / "c-ties"), "--policy", "lru", *words.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
