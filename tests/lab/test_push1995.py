"""push1995 reproduced: its traces are those that are written, what was simulated is kept and reported."""

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
from newsstand.errors import BadInput
from newsstand.lab.push1995 import CENTRE, QUICK, SOURCES, Experiment, Measured, Task, done_task, run_experiment
from newsstand.lab.push1995_claims import by
from newsstand.lab.push1995_report import write
from newsstand.lab.push1995_workload import demand_made
from newsstand.lab.push_cache_reading import demand_of
from newsstand.lab.push_cache_runs import SIMULATING
from newsstand.planning.backbone_waxman import cities
from newsstand.workload.push1995 import PushSettings
from newsstand.workload.push1995_generate import generate
from newsstand.workload.push1995_trace import read_push_trace
from newsstand.workload.push1995_world import populated

TINY = Experiment((1, 2), requests=300, days=1, thresholds=(1,), pages=(1, 10), servers=(5, 20))


def test_every_parameter_of_the_chapter_is_varied() -> None:
    settings = [task.setting for task in Experiment().settings if task.kind == "global"]
    for name in ("threshold", "pages", "servers", "caching", "lookup", "client_cache"):
        assert len({getattr(setting, name) for setting in settings}) > 1
    assert len(set(Experiment().tasks)) == len(Experiment().tasks)


@pytest.mark.parametrize("experiment", [Experiment(), QUICK], ids=["full", "quick"])
def test_the_threshold_is_varied_with_client_caches_too(experiment: Experiment) -> None:
    for seed in experiment.seeds:
        on_top = {
            task.setting.threshold: task.setting
            for task in experiment.tasks
            if task.kind == "global" and task.setting.client_cache == "infinite" and task.setting.servers
            if task.setting.seed == seed
        }
        usual = replace(CENTRE, client_cache="infinite", seed=seed)
        assert on_top == {threshold: replace(usual, threshold=threshold) for threshold in (25, 50, 100, 200)}


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

    (file,) = (tmp_path / "runs").iterdir()
    rows = json.loads(file.read_text())
    for damaged in (file.read_text()[:-9], json.dumps([{**rows[0], "kind": []}])):
        file.write_text(damaged)
        with pytest.raises(BadInput, match="is damaged") as refused:
            run_experiment(spark, small, tmp_path)
        assert str(refused.value).startswith(f"{file}: ")


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
