"""Section V of bad2018, simulated: stored runs, intervals, verdicts, reports."""

from __future__ import annotations

import itertools
import json
import math
import re
import statistics
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grimp
import pandas as pd
import pytest
from pyspark.sql import SparkSession
from support.environment import without_settings

from newsstand.cli.lab.bad2018 import experiment_of
from newsstand.cli.lab.reproduce import ReportOptions
from newsstand.cli.main import run as command
from newsstand.lab.papers.bad2018 import report as bad2018_report
from newsstand.lab.papers.bad2018.claims import claims
from newsstand.lab.papers.bad2018.experiment import (
    AT_EQUAL_B,
    AT_EQUAL_MEMORY,
    BOUND,
    CACHING,
    EXP,
    LSC,
    NC,
    PAPER,
    REPLAY_MODULES,
    TTL,
    CachingScheme,
    ResultCacheExperiment,
    ResultCacheResults,
    SettingVariant,
    run_experiment,
)
from newsstand.lab.papers.bad2018.extensions import claims as claims_beyond
from newsstand.lab.papers.bad2018.extensions import table
from newsstand.lab.papers.bad2018.figures import tables, variants_table
from newsstand.lab.papers.bad2018.measurements import ResultCacheMeasurements
from newsstand.lab.papers.bad2018.prototype import COLUMNS, POLICIES, write_prototype
from newsstand.lab.papers.bad2018.report import write_simulation
from newsstand.lab.papers.push1995 import experiment as push1995
from newsstand.lab.papers.storage2011.experiment import PLANNING_MODULES
from newsstand.lab.papers.survival2011.experiment import SURVIVAL_MODULES
from newsstand.lab.push_caching import runs as push_cache_runs
from newsstand.lab.reporting import run_cache
from newsstand.lab.reporting.claims import report_text
from newsstand.lab.reporting.run_cache import import_closure, sources_digest
from newsstand.lab.reporting.statistics import interval
from newsstand.lab.results.compiled import OF_EACH_CACHE

SIZES = (50, 200, 500)
EXPERIMENT = ResultCacheExperiment(seeds=(1, 2, 3), sizes=SIZES)
HIT = {"NC": -0.57, "LRU": 0.001, "LSC": 0.004, "LSCz": 0.002, "LSD": 0.002, "EXP": 0.0, "TTL": 0.006}
"""What a scheme has over 0.57 and what its size brings."""
HOLD = {"LRU": 20.0, "LSC": 21.0, "LSCz": 22.0, "LSD": 22.0, "EXP": 10.0, "TTL": 30.0}
OF_SECTION_V = {"fig3", "fig3_late", "fig4", "fig5a", "fig5b"}


def run(seed: int, scheme: str, size: int, variant: str = AT_EQUAL_B) -> dict[str, Any]:
    """A run in the paper's world: everything follows from the hit ratio; seeds differ far more than schemes."""
    hit = 0.0 if scheme == "NC" else 0.57 + HIT[scheme] + size / 20_000 + 0.02 * seed
    hit += 0.0001 * (seed % 2) * (scheme == "LSC")  # what is left of the difference of two schemes
    budget, hold = size * 1_000_000, HOLD.get(scheme, 0.0) + size / 10
    return {
        "seed": seed,
        "variant": variant,
        "scheme": scheme,
        "megabytes": size,
        "hit_ratio": hit,
        "hit_ratio_late": hit / 10,
        "hit_bytes": round(1e12 * hit),
        "miss_bytes": round(1e12 * (1 - hit)),
        "vol_bytes": 10**11 + seed,
        "fetch_bytes": round(1e12 * (1 - hit)) + 10**11 + seed,
        "mean_latency_s": 0.5 + 0.5 * (1 - hit),
        "mean_hold_s": None if scheme == "NC" else hold,
        "mean_hold_dropped_s": None if scheme == "NC" else hold * (1.9 if scheme == "TTL" else 1.6),
        "mean_ttl_insert_s": None if scheme == "NC" else 2 * hold,
        "avg_bytes": budget * (1.2 if scheme == "TTL" else 0.99),
        "max_bytes": budget * (1.5 if scheme == "TTL" else 1.0),
        "sum_rho_T": None if scheme == "NC" else budget * 0.995,
    }


@pytest.fixture
def results() -> ResultCacheResults:
    """The paper's world, in which TTL is ahead with equal memory, too."""
    cases = list(itertools.product(EXPERIMENT.seeds, (scheme.label for scheme in PAPER), SIZES))
    runs = [run(*case) for case in cases]
    runs += [run(seed, "LSC", size, AT_EQUAL_MEMORY) for seed in EXPERIMENT.seeds for size in SIZES]
    runs += [run(seed, "EXP", 200, "cap 300 s") for seed in EXPERIMENT.seeds]
    sums = {"put": 9.0, "ttl_put_ms": 900_000.0, "dropped": 3.0, "hold_dropped_ms": 270_000.0}
    caches = [
        {"scheme": scheme, "megabytes": 200, "subscription": number} | sums
        for scheme in ("TTL", "LSC")
        for number in range(4)
    ]
    return ResultCacheResults(pd.DataFrame(runs), pd.DataFrame(caches))


def changed(
    results: ResultCacheResults, where: str, what: str, factor: float = 1.0, plus: float = 0.0
) -> ResultCacheResults:
    runs = results.runs.copy()
    rows = runs.query(where).index
    runs[what] = runs[what].astype(float)
    runs.loc[rows, what] = runs.loc[rows, what] * factor + plus
    return ResultCacheResults(runs, results.caches)


def failing(results: ResultCacheResults, experiment: ResultCacheExperiment = EXPERIMENT) -> set[str]:
    judged = claims(ResultCacheMeasurements(results, experiment))
    assert len({claim.id for claim in judged}) == len(judged)
    assert all(claim.text and claim.paper and claim.measured for claim in judged)
    return {claim.id for claim in judged if not claim.holds}


# Intervals


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062), (2, 4.3027), (9, 2.2622), (10, 2.2281), (29, 2.0452), (100, 1.9840)]
)
def test_intervals_use_quantiles_of_students_t_distribution(freedom: int, quantile: float) -> None:
    values = [*range(freedom + 1)]
    expected = quantile * statistics.stdev(values) / math.sqrt(len(values))
    assert interval(values).half == pytest.approx(expected, rel=1e-4)


def test_interval_is_mean_and_deviation_by_students_t() -> None:
    found = interval([1.0, 2.0, 3.0])
    assert found.mean == 2
    assert found.half == pytest.approx(4.302653 / math.sqrt(3))
    assert not found.is_above
    assert interval([2.0, 2.1, 2.2]).is_above
    assert interval([-2.0, -2.1, -2.2]).is_below


def test_interval_requires_two_runs() -> None:
    alone = interval([5.0])
    assert alone.mean == 5
    assert (alone.is_known, alone.is_above, alone.is_below) == (False, False, False)
    assert alone.text() == "+5.00"
    assert interval([5.0, 5.0]).text() == "+5.00 ± 0.00"


def test_schemes_are_compared_seed_by_seed(results: ResultCacheResults) -> None:
    measured = ResultCacheMeasurements(results, EXPERIMENT)
    of_lsc, lead = measured.of("hit_ratio", "LSC", 200).interval, measured.less("hit_ratio", "LSC", "LRU", 200)
    assert lead.mean == pytest.approx(0.003 + 0.0002 / 3)
    assert lead.is_above
    assert of_lsc.half > 100 * lead.half


# Verdicts


def test_claims_hold_in_world_of_paper(results: ResultCacheResults) -> None:
    assert failing(results) == set()
    assert len(claims(ResultCacheMeasurements(results, EXPERIMENT))) == 23


@pytest.mark.parametrize(
    ("where", "what", "factor", "plus", "refuted"),
    [
        ("scheme == 'EXP' and megabytes == 50", "mean_latency_s", 2.0, 0.0, {"V-cache-latency"}),
        (
            "scheme == 'LSD' and megabytes == 500",
            "hit_ratio",
            1.0,
            -0.0221,
            {"V-size-hit-ratio", "V-exp-lowest", "V-lscz-lsd"},
        ),
        ("scheme == 'LSD' and megabytes == 500", "hit_bytes", 1.0, -1e11, {"V-size-hit-byte"}),
        ("scheme == 'LSD' and megabytes == 500", "mean_latency_s", 1.0, 0.1, {"V-size-latency"}),
        ("scheme == 'LSD' and megabytes == 500", "fetch_bytes", 1.0, 1e11, {"V-size-fetch"}),
        ("scheme == 'LRU' and megabytes == 200", "hit_ratio", 1.0, 0.0051, {"V-ttl-highest", "V-lsc-lru"}),
        (
            "scheme == 'LSC' and megabytes == 200 and variant == 'paper'",
            "hit_ratio",
            1.0,
            0.0025,
            {"V-ttl-highest", "V-ttl-lsc"},
        ),
        ("variant == 'equal memory'", "hit_ratio", 1.0, 0.0025, {"V-ttl-lsc-equal-memory"}),
        ("scheme == 'EXP' and megabytes == 50", "hit_ratio", 1.0, 0.0015, {"V-exp-lowest"}),
        ("scheme == 'LSD' and megabytes == 500", "hit_ratio", 1.0, 0.0012, {"V-lscz-lsd"}),
        ("scheme == 'LRU' and megabytes == 500 and seed == 2", "vol_bytes", 1.0, 1.0, {"V-vol"}),
        ("scheme == 'TTL' and megabytes == 50", "mean_latency_s", 1.0, 0.0015, {"V-latency-ttl"}),
        ("scheme == 'LSC' and megabytes == 50", "mean_latency_s", 1.0, 0.0016, {"V-latency-lsc-lru"}),
        ("scheme == 'LSC' and megabytes == 50", "mean_hold_s", 2.0, 0.0, {"V-hold-ttl"}),
        ("scheme == 'LRU' and megabytes == 50", "mean_hold_s", 0.1, 0.0, {"V-hold-exp"}),
        ("scheme == 'TTL'", "avg_bytes", 1.2, 0.0, {"V-ttl-size"}),
        ("scheme == 'LSD' and megabytes == 50 and seed == 1", "max_bytes", 1.001, 0.0, {"V-limit"}),
        ("scheme == 'TTL' and megabytes == 50", "max_bytes", 0.5, 0.0, {"V-ttl-exceeds"}),
        ("scheme == 'TTL' and megabytes == 500", "sum_rho_T", 0.97, 0.0, {"V-sum-rho-T"}),
        ("scheme == 'TTL' and megabytes == 50", "mean_hold_dropped_s", 0.9, 0.0, {"V-hold-matches-ttl"}),
        ("scheme == 'TTL' and megabytes == 50", "mean_hold_s", 2.5, 0.0, {"V-hold-below-ttl"}),
    ],
)
def test_claims_are_refuted_by_contrary_measurements(
    results: ResultCacheResults, where: str, what: str, factor: float, plus: float, refuted: set[str]
) -> None:
    assert failing(changed(results, where, what, factor, plus)) == refuted


def test_lead_requires_agreement_of_seeds(results: ResultCacheResults) -> None:
    one_seed = changed(results, "scheme == 'LRU' and seed == 2 and megabytes == 50", "hit_ratio", plus=0.004)
    assert ResultCacheMeasurements(one_seed, EXPERIMENT).less("hit_ratio", "LSC", "LRU", 50).mean > 0
    assert failing(one_seed) == {"V-lsc-lru", "V-ttl-highest", "V-exp-lowest"}


def test_agreement_claim_is_refuted_by_other_orders(results: ResultCacheResults) -> None:
    turned = changed(results, "scheme in ('LSC', 'TTL')", "hit_bytes", 0.5)
    assert failing(turned) == {"V-agreement"}


def test_refuted_claim_has_reason(results: ResultCacheResults) -> None:
    refuted = changed(results, "variant == 'equal memory'", "hit_ratio", plus=0.0025)
    before, after = (
        {claim.id: claim.measured for claim in claims(ResultCacheMeasurements(one, EXPERIMENT))}
        for one in (results, refuted)
    )
    reasons = {name: claim.why for name, claim in report_text("bad2018").claims.items() if claim.why}
    assert reasons["V-ttl-lsc-equal-memory"] in after["V-ttl-lsc-equal-memory"]
    assert not any(reason in measured for reason in reasons.values() for measured in before.values())
    assert set(reasons) <= set(before)


def test_single_run_settles_only_what_holds_in_every_run(results: ResultCacheResults) -> None:
    alone = ResultCacheMeasurements(
        ResultCacheResults(results.runs.query("seed == 1"), results.caches), replace(EXPERIMENT, seeds=(1,))
    )
    verdicts = {claim.id: claim.holds for claim in claims(alone)}
    assert {name for name, holds in verdicts.items() if holds is not None} == {"V-vol", "V-limit"}
    assert len(verdicts) == 23


def test_schemes_not_run_are_not_judged(results: ResultCacheResults) -> None:
    few = replace(EXPERIMENT, schemes=(LSC, EXP), sizes=(200,))
    part = results.runs.query("scheme in ('LSC', 'EXP') and megabytes == 200 and variant == 'paper'")
    ids = {claim.id for claim in claims(ResultCacheMeasurements(ResultCacheResults(part, results.caches), few))}
    assert ids == {"V-exp-lowest", "V-agreement", "V-vol", "V-limit", "V-hold-exp"}


# What is written


@pytest.fixture
def result(results: ResultCacheResults, tmp_path: Path) -> dict[str, Any]:
    written = write_simulation(results, EXPERIMENT, "newsstand reproduce bad2018", tmp_path)
    return dict(json.loads(json.dumps(written, allow_nan=False)))


def test_tables_figures_and_report_are_written(
    result: dict[str, Any], results: ResultCacheResults, tmp_path: Path
) -> None:
    assert set(result["figures"]) == OF_SECTION_V
    for name in OF_SECTION_V:
        assert "<svg" in (tmp_path / "figures" / f"{name}.svg").read_text()
        assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert {file.stem for file in (tmp_path / "tables").glob("*.csv")} == {
        "simulation",
        "simulation_runs",
        "simulation_caches",
    }
    assert len(pd.read_csv(tmp_path / "tables" / "simulation_runs.csv")) == len(results.runs)
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == len(OF_SECTION_V)
    assert "10,000 subscribers with 10 live subscriptions each to 1,000, 6 hours, 3 runs." in page
    assert not re.search(r"<(?:link|script|img|iframe)\b|@import|url\((?!#)", page)
    row = next(row for row in result["tables"]["simulation"] if row["scheme"] == "LSC" and row["megabytes"] == 200)
    assert row["runs"] == 3
    assert row["hit ratio"] == pytest.approx(0.57 + 0.004 + 0.01 + 0.04 + 0.0002 / 3)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bad2018_report, "draw", lambda *_: {})


@pytest.mark.usefixtures("undrawn")
def test_report_names_scale_and_single_run(results: ResultCacheResults, tmp_path: Path) -> None:
    alone = ResultCacheExperiment(seeds=(1,), sizes=SIZES, scale=10)
    one = ResultCacheResults(results.runs.query("seed == 1"), results.caches)
    result = json.loads(
        json.dumps(write_simulation(one, alone, "newsstand reproduce bad2018", tmp_path), allow_nan=False)
    )
    assert [claim["holds"] for claim in result["claims"]].count(None) == 21
    page = (tmp_path / "report.html").read_text()
    assert "1,000 subscribers" in page
    assert "divided by 10" in page
    assert "One run has no intervals" in page
    assert page.count('<td class="unsure">unsure</td>') == 21
    assert "nan" not in page


def test_variants_are_shown_beside_setting(results: ResultCacheResults) -> None:
    table = variants_table(ResultCacheMeasurements(results, EXPERIMENT)).set_index("variant")
    assert table.loc["cap 300 s", "EXP"] == table.loc["paper", "EXP"] == "0.6200"
    assert table.loc["cap 300 s", "LSC"] == ""


def test_scheme_beyond_paper_is_measured_and_drawn(results: ResultCacheResults, tmp_path: Path) -> None:
    beyond = replace(EXPERIMENT, schemes=(*PAPER, CachingScheme("TTL within B", "ttl")))
    more = results.runs.query("scheme == 'TTL'").assign(scheme="TTL within B")
    both = ResultCacheResults(pd.concat([results.runs, more]), results.caches)
    written = write_simulation(both, beyond, "newsstand reproduce bad2018", tmp_path)
    assert "TTL within B" in (tmp_path / "figures" / "fig3.svg").read_text()
    assert failing(both, beyond) == set()
    assert len(list(written["claims"])) == 23  # type: ignore[call-overload]


def play(folder: Path, command: str = "newsstand reproduce bad2018 --part prototype") -> dict[str, object]:
    counts = dict.fromkeys(COLUMNS, 1)
    rows = [
        counts | {"play": "one", "policy": policy, "budget": size, "delay_ms": 0, "cap_s": 3600.0}
        for policy, size in [("nc", 0), *((policy, 100_000) for policy in POLICIES)]
    ]
    return write_prototype(rows, "Played in a test.", command, folder)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("is_played_first", [True, False])
def test_report_shows_both_parts_in_either_order(
    results: ResultCacheResults, tmp_path: Path, is_played_first: bool
) -> None:
    doings = [
        partial(play, tmp_path),
        partial(write_simulation, results, EXPERIMENT, "newsstand reproduce bad2018", tmp_path),
    ]
    first, last = doings if is_played_first else doings[::-1]
    first()
    written = json.loads(json.dumps(last()))
    assert set(written["figures"]) == {"fig7", "late"}
    assert set(written["tables"]) == {"simulation", "prototype"}
    ids = [claim["id"] for claim in written["claims"]]
    assert ids.index("V-lsc-lru") < ids.index("VI-lsc-lru")
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 2
    assert page.index("Section V, simulated") < page.index("Played in a test.")
    assert "newsstand reproduce bad2018 &amp;&amp; newsstand reproduce bad2018 --part prototype" in page


@pytest.mark.usefixtures("undrawn")
def test_report_has_one_command_for_both_parts(results: ResultCacheResults, tmp_path: Path) -> None:
    whole = "newsstand reproduce bad2018 --part all"
    play(tmp_path, whole)
    write_simulation(results, EXPERIMENT, whole, tmp_path)
    assert (tmp_path / "report.html").read_text().count(whole) == 1


# Beyond the paper

ANY, FOLLOWER = CachingScheme("lscz-any", "lscz-any"), CachingScheme("adaptive", "adaptive")
BEYOND = replace(EXPERIMENT, beyond=(ANY, FOLLOWER))


@pytest.fixture
def beyond(results: ResultCacheResults) -> ResultCacheResults:
    """lscz-any is ahead of TTL but for bytes, adaptive was run once and at one size, the bound with two seeds."""
    ttl = results.runs.query("scheme == 'TTL'")
    better = ttl.assign(scheme="lscz-any", hit_ratio=ttl["hit_ratio"] + 0.02 + 0.0001 * (ttl["seed"] % 2))
    better["hit_ratio_late"] = 2 * better["hit_ratio_late"]
    better["mean_latency_s"] -= 0.01 + 0.0001 * (ttl["seed"] % 2)
    better["fetch_bytes"] += 10**9
    followed = better.query("seed == 1 and megabytes == 200").assign(scheme="adaptive")
    bound = ttl.query("seed < 3").assign(variant=BOUND, scheme=BOUND, hit_ratio=ttl["hit_ratio"] + 0.05)
    bound["hit_ratio_late"] *= 2.5
    columns = ["seed", "variant", "scheme", "megabytes", "hit_ratio", "hit_ratio_late"]
    return ResultCacheResults(pd.concat([results.runs, better, followed]), results.caches, bound[columns])


def test_extensions_are_judged_against_ttl(beyond: ResultCacheResults) -> None:
    verdicts = {claim.id: claim.holds for claim in claims_beyond(ResultCacheMeasurements(beyond, BEYOND))}
    assert verdicts == {
        "beyond-lscz-any-hit-ratio": True,
        "beyond-lscz-any-latency": True,
        "beyond-lscz-any-fetch": False,
        "beyond-adaptive-hit-ratio": None,
        "beyond-adaptive-latency": None,
        "beyond-adaptive-fetch": None,
    }
    assert failing(beyond, BEYOND) == set()


def test_extensions_table_compares_common_runs(beyond: ResultCacheResults) -> None:
    shown = table(ResultCacheMeasurements(beyond, BEYOND)).set_index(["cache MB", "scheme"])
    assert list(shown.index.get_level_values("scheme"))[:4] == ["TTL", "LSC", "lscz-any", "the bound"]
    assert len(shown) == 3 * 4 + 1
    # TTL has 0.57 + 0.006 + 0.01 + 0.04 in the mean over three seeds, 0.02 less in the only run of adaptive.
    assert shown.loc[(200, "adaptive"), "hit ratio"] == "0.6461"
    assert shown.loc[(200, "adaptive"), "less TTL's (points)"] == "+2.01"
    assert shown.loc[(200, "adaptive"), "runs"] == 1
    assert shown.loc[(200, "the bound"), "hit ratio"] == "0.6760"
    assert shown.loc[(200, "lscz-any"), "less the bound (points)"].startswith("-3.00 ± ")
    assert shown.loc[(200, "TTL"), "late hits of the bound's"] == "40%"
    assert shown.loc[(200, "lscz-any"), "late hits of the bound's"] == "80%"


def test_extensions_have_their_own_section_and_figure(beyond: ResultCacheResults, tmp_path: Path) -> None:
    written = json.loads(json.dumps(write_simulation(beyond, BEYOND, "newsstand reproduce bad2018", tmp_path)))
    assert set(written["figures"]) == OF_SECTION_V | {"beyond"}
    assert len(written["claims"]) == 23 + 6
    drawn = {name: (tmp_path / "figures" / f"{name}.svg").read_text() for name in written["figures"]}
    assert [name for name, svg in drawn.items() if "lscz-any" in svg] == ["beyond"]
    assert "the bound" in drawn["beyond"]
    page = (tmp_path / "report.html").read_text()
    assert "Adaptive was run with 1 seed and 1 size; the bound was computed for 2 seeds" in page
    assert page.index("Section V, simulated") < page.index("Beyond the paper")


# Runs

TINY = ResultCacheExperiment(
    seeds=(1, 2),
    sizes=(50, 500),
    scale=100,
    schemes=(NC, LSC, TTL),
    variants=(SettingVariant("Zipf", "Zipf's law", (EXP,), "zipf"),),
    seeds_of_variants=1,
    hours=0.5,
    beyond=(CachingScheme("lscz-any", "lscz-any"), CachingScheme("adaptive", "adaptive")),
    seeds_of_bound=1,
)


def test_import_closure_has_all_that_is_imported() -> None:
    imports = grimp.build_graph("newsstand", cache_dir=None)
    for roots in (
        REPLAY_MODULES,
        PLANNING_MODULES,
        SURVIVAL_MODULES,
        push_cache_runs.SIMULATING,
        push1995.PUSH_MODULES,
    ):
        closure = import_closure(roots)
        assert closure >= set(roots).union(*(imports.find_upstream_modules(root) for root in roots))
        code = f"import sys, {', '.join(roots)}; print(*(name for name in sys.modules if 'newsstand' in name))"
        loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert closure >= set(loaded.split())
        assert "newsstand.cluster" not in closure


def test_run_cache_key_covers_code_that_distributes_runs() -> None:
    """It chooses the engine, the end of the events and the network, so that it shows in what is measured."""
    assert "newsstand.lab.results.sweep" in import_closure(REPLAY_MODULES)
    assert "newsstand.lab.push_caching.runs" in import_closure(push_cache_runs.SIMULATING)


def test_sources_digest_changes_with_any_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("__init__", "root", "used", "other"):
        (tmp_path / f"{module}.py").write_text("import newsstand.used\n" if module == "root" else "")
    monkeypatch.setattr(run_cache, "PACKAGE", tmp_path)
    digests = []
    for file, text in (("used", "one"), ("used", "two"), ("other", "three"), ("used", "one")):
        (tmp_path / f"{file}.py").write_text(text)
        sources_digest.cache_clear()
        digests.append(sources_digest("newsstand.root"))
    sources_digest.cache_clear()
    assert digests[0] == digests[3]
    assert digests[1] == digests[2]
    assert digests[0] != digests[1]


@pytest.mark.slow
def test_experiment_continues_after_stop(spark: SparkSession, tmp_path: Path) -> None:
    first = run_experiment(spark, TINY, tmp_path, keep=True)
    assert len(list((tmp_path / "workloads").iterdir())) == 3
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").iterdir()}
    assert len(files) == 3 + 2 + 1

    again = run_experiment(spark, TINY, tmp_path)
    assert not (tmp_path / "workloads").exists()
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").iterdir()} == files
    pd.testing.assert_frame_equal(again.runs, first.runs)
    pd.testing.assert_frame_equal(again.caches, first.caches)

    more = run_experiment(spark, replace(TINY, schemes=(NC, LSC, TTL, EXP)), tmp_path)
    pd.testing.assert_frame_equal(
        more.runs[more.runs["scheme"] != "EXP"].reset_index(drop=True), only(first, "EXP")
    )

    assert_complete(first)
    assert {claim.id for claim in claims(ResultCacheMeasurements(first, TINY))} >= {
        "V-ttl-lsc-equal-memory",
        "V-sum-rho-T",
    }


def only(results: ResultCacheResults, left_out: str) -> pd.DataFrame:
    return results.runs[results.runs["scheme"] != left_out].reset_index(drop=True)


def assert_complete(results: ResultCacheResults) -> None:
    runs = results.runs
    kinds = set(zip(runs["seed"], runs["variant"], runs["scheme"], runs["megabytes"], strict=True))
    wanted = set(itertools.product((1, 2), [AT_EQUAL_B], ("NC", "LSC", "TTL"), (50, 500)))
    wanted |= set(itertools.product((1, 2), [AT_EQUAL_MEMORY], ("LSC",), (50, 500)))
    wanted |= set(itertools.product((1, 2), [AT_EQUAL_B], ["lscz-any"], (50, 500)))
    wanted |= set(itertools.product((1,), [AT_EQUAL_B], ["adaptive"], (50, 500)))
    assert kinds == wanted | {(1, "Zipf", "EXP", 500)}
    assert len(runs) == len(kinds)
    # B is divided by the scale; LSC of equal memory has what TTL had.
    by = runs.set_index(["seed", "variant", "scheme", "megabytes"])
    assert by.loc[(1, AT_EQUAL_B, "LSC", 500), "cache_bytes"] == 5_000_000
    for seed, size in itertools.product((1, 2), (50, 500)):
        had = by.loc[(seed, AT_EQUAL_B, "TTL", size), "avg_bytes"]
        assert by.loc[(seed, AT_EQUAL_MEMORY, "LSC", size), "cache_bytes"] == round(had)
    # All of a seed see the same, whatever the scheme; without a cache nothing hits.
    assert set(runs.query("variant != 'Zipf'").groupby("seed")["vol_bytes"].nunique()) == {1}
    assert set(runs.query("scheme == 'NC'")["hits"]) == {0}
    # Nobody within the budget exceeds the bound.
    bounds = results.bounds.set_index(["seed", "megabytes"])
    assert list(bounds.index) == [(1, 50), (1, 500)]
    for scheme, size in itertools.product(("LSC", "lscz-any", "adaptive"), (50, 500)):
        of_it = by.loc[(1, AT_EQUAL_B, scheme, size)]
        assert 0 < of_it["hit_ratio"] <= bounds.loc[(1, size), "hit_ratio"] < 1
        assert 0 < of_it["hit_ratio_late"] <= bounds.loc[(1, size), "hit_ratio_late"] < 1
    # What each cache has adds up to the run.
    for scheme in ("TTL", "LSC"):
        of_all = by.loc[(1, AT_EQUAL_B, scheme, 500)]
        each = results.caches.query("scheme == @scheme")[list(OF_EACH_CACHE)].sum()
        assert each["dropped"] == of_all["dropped_objects"]
        assert each["hold_dropped_ms"] == of_all["hold_dropped_ms"]
        assert each["ttl_put_ms"] == of_all["ttl_insert_ms"]


def test_experiment_has_setting_of_section_v() -> None:
    assert [scheme.label for scheme in PAPER] == ["NC", "LRU", "LSC", "LSCz", "LSD", "EXP", "TTL"]
    assert {scheme.evict for scheme in CACHING} == {"after"}
    workload = ResultCacheExperiment().workload(7)
    assert (workload.subscribers, workload.subscriptions, workload.seed) == (10_000, 1_000, 7)
    assert ResultCacheExperiment().bytes_of(50) == 50_000_000


def test_tables_contain_all_measures(results: ResultCacheResults) -> None:
    table = tables(ResultCacheMeasurements(results, EXPERIMENT))["simulation"]
    assert len(table) == 7 * 3 + 3 + 1
    assert table.query("scheme != 'NC'").notna().all(axis=None)


# The command


def test_quick_is_tenth_with_few_sizes_and_runs() -> None:
    quick, whole = (experiment_of(is_quick, None, None, None, 6.0) for is_quick in (True, False))
    assert (quick.scale, quick.sizes, len(quick.seeds)) == (10, (50, 200, 500), 3)
    assert whole == ResultCacheExperiment()
    other = experiment_of(False, 2, [500, 50, 50], 5, 1.0)
    assert other == ResultCacheExperiment((1, 2), (50, 500), 5, hours=1.0)


@pytest.mark.parametrize(
    "options", ["", " --quick", " --runs 2 --cache-mb 50 --cache-mb 500 --scale 5 --hours 1 --keep"]
)
def test_report_has_command_with_its_options(
    options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[str] = []
    monkeypatch.setattr(ReportOptions, "reproduce", lambda report, *_: commands.append(report.command))
    words = ["--json", *options.split(), "--master", "local[1]"]
    assert command(["reproduce", "bad2018", "--out", str(tmp_path), *words]) == 0
    assert commands == [f"newsstand reproduce bad2018{options}"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--quick", "--runs", "2"], "--quick: remove --runs, --cache-mb and --scale"),
        (["--quick", "--scale", "10"], "--quick: remove --runs, --cache-mb and --scale"),
        (["--runs", "0"], "--runs"),
        (["--part", "section-v"], "--part"),
    ],
)
def test_command_names_mistakes(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["reproduce", "bad2018", "--out", str(tmp_path / "new"), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("newsstand: ")
    assert message in line


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_command_writes_report_and_continues_with_more_runs(tmp_path: Path) -> None:
    """In a process of its own, as it starts a session of its own."""
    words = "reproduce bad2018 --out out --scale 100 --hours 0.5 --cache-mb 50 --cache-mb 500 --json --runs"
    for runs in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "newsstand.cli.main", *words.split(), runs],
            cwd=tmp_path,
            env=without_settings(),
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr.splitlines() == [f"seed {seed + 1}" for seed in range(int(runs))]
        result = json.loads(done.stdout, parse_constant=pytest.fail)
        assert set(result) == {"claims", "tables", "figures", "report"}
        assert {row["runs"] for row in result["tables"]["simulation"] if row["variant"] == AT_EQUAL_B} == {
            int(runs)
        }
        held = {claim["id"]: claim["holds"] for claim in result["claims"]}
        assert held["V-cache-latency"] is (None if runs == "1" else True)
        assert held["V-limit"] is True
        assert "beyond-adaptive-hit-ratio" in held
    assert not (tmp_path / "out" / "workloads").exists()
    assert (tmp_path / "out" / "report.html").is_file()
