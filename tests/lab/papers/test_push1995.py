"""push1995 reproduced: its traces, its stored simulations, its report."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from newsstand.cli.main import run
from newsstand.errors import BadInput
from newsstand.geo.backbone_sources import cities
from newsstand.lab.papers.push1995.claims import by
from newsstand.lab.papers.push1995.experiment import (
    CENTRE,
    QUICK,
    PushExperiment,
    PushMeasurements,
    PushTask,
    demand_made,
    run_experiment,
    run_task,
)
from newsstand.lab.papers.push1995.report import write
from newsstand.lab.push_caching.demand import demand_of
from newsstand.lab.reporting import figures
from newsstand.workload.push1995.generator import generate
from newsstand.workload.push1995.settings import PushSettings
from newsstand.workload.push1995.trace import read_push_trace
from newsstand.workload.push1995.world import populated

TINY = PushExperiment((1, 2), requests=300, days=1, thresholds=(1,), pages=(1, 10), servers=(5, 20))


def test_experiment_varies_every_parameter_of_chapter() -> None:
    settings = [task.setting for task in PushExperiment().settings if task.kind == "global"]
    for name in ("threshold", "pages", "servers", "caching", "lookup", "client_cache"):
        assert len({getattr(setting, name) for setting in settings}) > 1
    assert len(set(PushExperiment().tasks)) == len(PushExperiment().tasks)


@pytest.mark.parametrize("experiment", [PushExperiment(), QUICK], ids=["full", "quick"])
def test_experiment_varies_threshold_with_client_caches(experiment: PushExperiment) -> None:
    for seed in experiment.seeds:
        on_top = {
            task.setting.threshold: task.setting
            for task in experiment.tasks
            if task.kind == "global" and task.setting.client_cache == "infinite" and task.setting.servers
            if task.setting.seed == seed
        }
        usual = replace(CENTRE, client_cache="infinite", seed=seed)
        assert on_top == {threshold: replace(usual, threshold=threshold) for threshold in (25, 50, 100, 200)}


def test_report_is_written_from_simulations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "save", partial(figures.save, endings=(".svg",)))  # others draw PNG
    outcomes = {task: run_task(TINY, task) for task in TINY.tasks}
    measured = PushMeasurements(outcomes, TINY)
    for outcome in measured.outcomes(by("hops", servers=20)):
        assert outcome.requests == 300
    written = write(outcomes, TINY, "newsstand reproduce push1995", tmp_path)
    assert "Geographical Push-Caching, reproduced" in (tmp_path / "report.html").read_text()
    assert set(written["figures"]) == {"threshold", "pages", "servers"}  # type: ignore[call-overload]
    rows = written["tables"]["settings"]  # type: ignore[index]
    assert len(rows) == sum(task.setting.servers > 0 for task in TINY.settings)
    json.dumps(written, allow_nan=False)


def test_demand_in_memory_equals_written_trace(spark: SparkSession, tmp_path: Path) -> None:
    settings = PushSettings(servers=3, subnets=20, requests=400, days=1, pages=15, seed=4)
    generate(spark, settings, populated(settings, cities()), tmp_path / "trace")
    read, made = demand_of(read_push_trace(spark, tmp_path / "trace")), demand_made(settings)
    for name in ("time", "server", "subnet", "page", "size"):
        assert np.array_equal(getattr(read, name), getattr(made, name)), name
    assert read.digest() == made.digest()


def test_simulations_are_found_in_cache(spark: SparkSession, tmp_path: Path) -> None:
    small = replace(TINY, seeds=(1,), pages=(10,), servers=(20,))
    first = run_experiment(spark, small, tmp_path)
    messages: list[str] = []
    again = run_experiment(spark, small, tmp_path, messages.append)
    assert messages == []
    assert again == first
    assert first[PushTask("global", CENTRE)] == run_task(small, PushTask("global", CENTRE))

    (file,) = (tmp_path / "runs").iterdir()
    rows = json.loads(file.read_text())
    for damaged in (file.read_text()[:-9], json.dumps([{**rows[0], "task": []}])):
        file.write_text(damaged)
        with pytest.raises(BadInput, match="is damaged") as refused:
            run_experiment(spark, small, tmp_path)
        assert str(refused.value).startswith(f"{file}: ")


def test_quick_excludes_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "push1995", "--quick", "--seeds", "2", "--out", str(tmp_path)]) == 2
    assert (
        capsys.readouterr().err
        == "newsstand: --quick and --seeds exclude each other: give one; quick is three seeds\n"
    )
