"""push1995 reproduced: its traces are those that are written, its claims are judged by what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import grimp
import numpy as np
import pytest
from pyspark.sql import SparkSession

import newsstand
from newsstand.cli.main import run
from newsstand.lab.intervals import Interval
from newsstand.lab.push1995 import CENTRE, SOURCES, Experiment, Measured, Task, done_task, run_experiment
from newsstand.lab.push1995_claims import above, by, claims
from newsstand.lab.push1995_report import write
from newsstand.lab.push1995_workload import demand_made
from newsstand.lab.push_cache_outcome import PushOutcome
from newsstand.lab.push_cache_reading import demand_of
from newsstand.lab.push_cache_runs import SIMULATING
from newsstand.planning.backbone_waxman import cities
from newsstand.workload.push1995 import PushSettings
from newsstand.workload.push1995_generate import generate
from newsstand.workload.push1995_trace import read_push_trace
from newsstand.workload.push1995_world import populated

TINY = Experiment((1, 2), requests=300, days=1, thresholds=(1,), pages=(1, 10), servers=(5, 20))


def made_up(experiment: Experiment, **better: float) -> Measured:
    """A world in which each setting has the traffic that its name says, in percent of 100, and else saves 40."""

    def outcome(task: Task) -> PushOutcome:
        setting = task.setting
        traffic = 100_000 if not setting.servers else 60_000
        if setting.servers:
            names = [
                task.kind,
                f"{setting.caching}{setting.pages}" if setting.caching == setting.lookup else "",
                f"{setting.caching}_{setting.servers}",
                setting.client_cache,
            ]
            traffic = next((int(1000 * better[name]) for name in names if name in better), traffic)
        elif setting.client_cache == "infinite":
            traffic = 75_000
        traffic += setting.seed
        return PushOutcome(
            origins=1,
            available=setting.servers,
            active=min(setting.servers, 4),
            requests=100,
            client_bytes=5000,
            most_stored_bytes=100 if setting.servers else 0,
            origin_answers=traffic,
            traffic=traffic,
            primary_traffic=traffic,
        )

    return Measured(experiment, {task: outcome(task) for task in experiment.tasks})


def verdicts(measured: Measured) -> dict[str, bool | None]:
    return {claim.id: claim.holds for claim in claims(measured)}


def test_all_claims_hold_in_a_world_like_the_papers() -> None:
    world = {"flat": 99.0, "hops_5": 70.0, "miles1": 80.0, "miles10": 80.0, "random1": 90.0, "random10": 95.0}
    world["infinite"] = 50.0
    assert set(verdicts(made_up(TINY, **world)).values()) == {True}


@pytest.mark.parametrize(
    ("name", "world"),
    [
        ("no-core-no-gain", {"flat": 60.0}),
        ("hops-beat-miles", {"hops10": 60.0, "miles10": 65.0}),
        ("random-is-worst", {"miles10": 80.0, "random10": 70.0}),
        ("more-servers-less-traffic", {"hops_5": 50.0}),
        ("pages-flat", {"hops1": 50.0}),
        ("pages-random", {"random1": 95.0, "random10": 90.0}),
        ("push-on-top-load", {"infinite": 70.0}),
        ("push-on-top-traffic", {"infinite": 70.0}),
    ],
)
def test_a_claim_fails_where_the_opposite_was_measured(name: str, world: dict[str, float]) -> None:
    assert verdicts(made_up(TINY, **world))[name] is False


def test_one_seed_tells_nothing() -> None:
    assert set(verdicts(made_up(replace(TINY, seeds=(1,)))).values()) == {None}


def test_an_interval_around_the_bound_is_undecided() -> None:
    assert [above(Interval(5.0, half), 4.0) for half in (0.5, 2.0)] == [True, None]
    assert above(Interval(3.0, 0.5), 4.0) is False


def test_every_parameter_of_the_chapter_is_varied() -> None:
    settings = [task.setting for task in Experiment().settings if task.kind == "global"]
    for name in ("threshold", "pages", "servers", "caching", "lookup", "client_cache"):
        assert len({getattr(setting, name) for setting in settings}) > 1
    assert len(set(Experiment().tasks)) == len(Experiment().tasks)


def test_a_report_is_written_of_what_was_simulated(tmp_path: Path) -> None:
    measured = Measured(TINY, {task: done_task(TINY, task) for task in TINY.tasks})
    for outcome in measured.outcomes(by("hops", servers=20)):
        assert outcome.requests == 300
    written = write(measured, "newsstand reproduce push1995", tmp_path)
    assert "Geographical Push-Caching, reproduced" in (tmp_path / "report.html").read_text()
    assert set(written["figures"]) == {"threshold", "pages", "servers"}  # type: ignore[call-overload]
    rows = written["tables"]["settings"]  # type: ignore[index]
    assert len(rows) == sum(task.setting.servers > 0 for task in TINY.settings)
    json.dumps(written, allow_nan=False)


def test_a_trace_made_in_place_is_the_one_that_is_written(spark: SparkSession, tmp_path: Path) -> None:
    settings = PushSettings(servers=3, subnets=20, requests=400, days=1, pages=15, seed=4)
    generate(spark, settings, populated(settings, cities()), tmp_path / "trace")
    read, made = demand_of(read_push_trace(spark, tmp_path / "trace")), demand_made(settings)
    for name in ("time", "server", "subnet", "page", "size"):
        assert np.array_equal(getattr(read, name), getattr(made, name)), name
    assert read.digest() == made.digest()


def test_what_was_simulated_is_found_again(spark: SparkSession, tmp_path: Path) -> None:
    small = replace(TINY, seeds=(1,), pages=(10,), servers=(20,))
    first = run_experiment(spark, small, tmp_path)
    told: list[str] = []
    again = run_experiment(spark, small, tmp_path, told.append)
    assert told == []
    assert again.outcomes(CENTRE) == first.outcomes(CENTRE) == [done_task(small, Task("global", CENTRE))]


def test_runs_are_known_by_all_sources_that_they_depend_on_and_by_no_figure() -> None:
    package = Path(newsstand.__file__).parent
    imports = grimp.build_graph("newsstand", cache_dir=None)
    simulating = ("newsstand.lab.push_cache", "newsstand.lab.push_cache_internet")
    for patterns, roots in ((SIMULATING, simulating), (SOURCES, (*simulating, "newsstand.lab.push1995_workload"))):
        digested = {source for pattern in patterns for source in package.glob(pattern)}
        needed = {module for root in roots for module in {root} | imports.find_upstream_modules(root)}
        sources = {name: package.parent / f"{name.replace('.', '/')}.py" for name in needed}
        left_out = {name for name, source in sources.items() if source.exists() and source not in digested}
        assert left_out == {"newsstand.errors"}
        assert not [source for source in digested if source.stem.endswith(("_figure", "_report"))]


def test_quick_has_its_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "push1995", "--quick", "--seeds", "2", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "newsstand: --quick and --seeds exclude each other: quick is three seeds\n"
