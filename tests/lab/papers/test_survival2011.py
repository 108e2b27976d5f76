"""`newsstand reproduce survival2011`: tasks, verdicts, reports, stored runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from newsstand.cli.lab.reproduce import ReportOptions
from newsstand.cli.main import run
from newsstand.lab.papers.survival2011.claims import claims, extension_claims
from newsstand.lab.papers.survival2011.experiment import (
    ALL,
    AXES,
    BALANCED,
    CENTRE,
    EXACT,
    FLOODED,
    NOP,
    PRT,
    QUICK,
    REDUCED,
    SIMULATE,
    SINGLE,
    SurvivalExperiment,
    SurvivalGrid,
    SurvivalRow,
    SurvivalTask,
    batches,
    classes_of,
    curves,
    run_experiment,
    run_task,
    seconds_of,
)
from newsstand.lab.papers.survival2011.figures import FIGURES
from newsstand.lab.papers.survival2011.measurements import SurvivalMeasurements, straightness
from newsstand.lab.papers.survival2011.report import write
from newsstand.lab.reporting import figures
from newsstand.lab.reporting.claims import above_everywhere, all_of, below_everywhere, within
from newsstand.lab.reporting.statistics import Interval
from newsstand.survival.setting import SurvivalSetting

World = Callable[[SurvivalRow], SurvivalRow]
EXPERIMENT = replace(SurvivalExperiment(), replications=3)


# Tasks


def test_simulation_has_number_for_each_replication() -> None:
    row = run_task(SurvivalTask(replace(CENTRE, slots=4), SIMULATE, 900, 3, classes_of(2, 2.0, None)))
    assert {len(of) for of in (row.mst, row.p_loss, row.sd, row.copy_rate, *row.quartiles, *row.class_mst)} == {3}
    for whole, low, high in zip(row.mst, *row.class_mst, strict=True):
        assert whole == pytest.approx((low + high) / 2)


def test_model_has_spread_on_demand() -> None:
    plain, whole = (run_task(SurvivalTask(SINGLE, EXACT, spread=spread)) for spread in (False, True))
    assert plain.mst == whole.mst
    assert plain.sd == ()
    low, middle, high = (of[0] for of in whole.quartiles)
    assert low < middle < high


def test_popularity_of_classes_follows_ratio_and_mean() -> None:
    for mean, unpopular in ((2.0, None), (None, 0.5)):
        low, high = classes_of(3, mean, unpopular)
        assert high.intensity == pytest.approx(3 * low.intensity)
        assert low.client_rate / low.intensity == pytest.approx(CENTRE.client_rate / CENTRE.intensity)
        given = (low.intensity + high.intensity) / 2 if mean else low.intensity
        assert given == pytest.approx(mean or unpopular)


def test_tasks_are_unique_and_curves_contain_centre() -> None:
    for experiment in (SurvivalExperiment(), QUICK):
        assert len(experiment.tasks) == len(set(experiment.tasks))
        assert all(CENTRE in curve.points.values() for curve in experiment.network)
        assert all(SINGLE in curve.points.values() for curve in experiment.single)
        assert {1, 2} < set(experiment.ratios)


# Verdicts on rows written by hand


def paper_row(task: SurvivalTask) -> SurvivalRow:
    """What the paper would have measured, or nearly."""
    setting = task.setting
    least = setting.slots / setting.publish_rate
    noise = [1 + (number - 1) / 1000 for number in range(task.replications)] if task.method == SIMULATE else [1.0]
    if task.classes:
        return _class_row(task, noise)
    mst = least * _times(setting)
    if setting.brokers > 1 and task.method == REDUCED:
        mst *= 0.98 - 0.005 * setting.brokers - 0.001 * setting.slots
    if task.method == BALANCED:
        mst *= 0.99
    lost = 0.0 if setting.policy == ALL else setting.loss
    return SurvivalRow(
        task,
        mst=tuple(mst * one for one in noise),
        p_loss=tuple(lost for _ in noise),
        sd=tuple(0.8 * least * one for one in noise),
        quartiles=tuple(tuple(level * least * one for one in noise) for level in (0.6, 0.9, 1.4)),
        copy_rate=tuple((0.5 if setting.policy == FLOODED else 0.4) * one for one in noise),
        mean_time=tuple(mst * one for one in noise) if task.method == SIMULATE else (),
    )


def _times(setting: SurvivalSetting) -> float:
    """How many times longer than the least possible messages survive."""
    if setting.policy == ALL:
        return 1.0
    prolonged = 1 + 0.3 * (setting.brokers - 1) / setting.intensity**0.5
    if setting.policy == NOP:
        gain = (0.03 * min(1.0, setting.intensity / 2) + 0.0001 * setting.slots) * (setting.brokers - 1)
        return prolonged / (1 + gain)
    return prolonged * (0.99 if setting.policy == FLOODED and setting.brokers > 1 else 1.0)


def _class_row(task: SurvivalTask, noise: list[float]) -> SurvivalRow:
    low, high = task.classes
    apart = (high.intensity / low.intensity) ** 0.15
    unpopular, popular = 14 / apart, 14 * apart
    if task.setting.policy == PRT:
        unpopular, popular = 0.97 * unpopular, 1.38 * popular
    pair = tuple(tuple(one * of for of in noise) for one in (unpopular, popular))
    return SurvivalRow(
        task, tuple((a + b) / 2 for a, b in zip(*pair, strict=True)), tuple(0.0 for _ in noise), class_mst=pair
    )


def measured(world: World = lambda row: row, experiment: SurvivalExperiment = EXPERIMENT) -> SurvivalMeasurements:
    return SurvivalMeasurements([world(paper_row(task)) for task in experiment.tasks], experiment)


def verdicts(
    world: World = lambda row: row, experiment: SurvivalExperiment = EXPERIMENT
) -> dict[str, bool | None]:
    found = measured(world, experiment)
    return {claim.id: claim.holds for claim in (*claims(found), *extension_claims(found))}


@pytest.mark.parametrize("experiment", [EXPERIMENT, replace(QUICK, replications=3)])
def test_claims_hold_in_world_of_paper(experiment: SurvivalExperiment) -> None:
    found = verdicts(experiment=experiment)
    assert len(found) == 32
    assert [name for name, holds in found.items() if not holds] == []


def changed(factor: float, where: Callable[[SurvivalTask], bool]) -> World:
    """Other survival times of some tasks."""

    def change(row: SurvivalRow) -> SurvivalRow:
        return replace(row, mst=tuple(one * factor for one in row.mst)) if where(row.task) else row

    return change


def simulated(where: Callable[[SurvivalSetting], bool]) -> Callable[[SurvivalTask], bool]:
    return lambda task: task.method == SIMULATE and not task.classes and where(task.setting)


def solved(
    method: str, where: Callable[[SurvivalSetting], bool] = lambda _: True
) -> Callable[[SurvivalTask], bool]:
    return lambda task: task.method == method and task.setting.brokers > 1 and where(task.setting)


def of_classes(policy: object, place: int, factor: float, more_than: float = 1.5) -> World:
    def change(row: SurvivalRow) -> SurvivalRow:
        if not row.task.classes or row.task.setting.policy != policy:
            return row
        low, high = row.task.classes
        if high.intensity < more_than * low.intensity:
            return row
        pair = list(row.class_mst)
        pair[place] = tuple(factor * one for one in pair[place])
        return replace(row, class_mst=tuple(pair))

    return change


def is_single(task: SurvivalTask) -> bool:
    return task.spread


def lost(share: float, where: Callable[[SurvivalSetting], bool]) -> World:
    return lambda row: replace(row, p_loss=tuple(share for _ in row.p_loss)) if where(row.task.setting) else row


def is_nop_over_brokers(setting: SurvivalSetting) -> bool:
    return setting == replace(CENTRE, policy=NOP, brokers=2)


@pytest.mark.parametrize(
    ("claim", "world"),
    [
        ("Fig4-mst", changed(1.02, is_single)),
        ("Fig4-difference", changed(1.02, lambda task: is_single(task) and task.method == REDUCED)),
        ("Fig4-difference-many", changed(1.001, lambda task: is_single(task) and task.method == REDUCED)),
        ("Fig5-publish-rate", changed(3, simulated(lambda one: one.publish_rate == 2))),
        ("Fig5-intensity", changed(1.5, simulated(lambda one: one.intensity == 4))),
        ("Fig5-brokers", changed(0.8, simulated(lambda one: one.brokers == 6))),
        ("Fig5-slots", changed(0.7, simulated(lambda one: one.slots == 30))),
        ("Fig5-error", changed(0.9, solved(REDUCED, lambda one: one.brokers == 6))),
        ("Fig5-error-brokers", changed(1.08, solved(REDUCED, lambda one: one.brokers == 6))),
        ("Fig5-error-slots", changed(1.06, solved(REDUCED, lambda one: one.slots == 30))),
        ("Fig5-error-invariant", changed(0.9, solved(REDUCED, lambda one: one.intensity == 4))),
        ("Eq1", changed(0.5, solved(REDUCED, lambda one: one.brokers == 2))),
        ("Fig6-loss", lost(0.001, lambda one: one.policy == ALL and one.brokers == 4)),
        ("Fig6-loss-alike", lost(0.1, lambda one: one.policy == NOP and one.brokers == 4)),
        ("Fig6-loss-small", lost(0.1, lambda one: one.policy == PRT and one.intensity > 3)),
        ("Fig6-worst", changed(2, simulated(lambda one: one.policy == ALL))),
        ("Fig6-priority", changed(1.3, simulated(lambda one: one.policy == NOP))),
        ("Fig6-priority-brokers", changed(0.8, simulated(is_nop_over_brokers))),
        ("Fig6-priority-slots", changed(0.9, simulated(lambda one: one.policy == NOP and one.slots == 5))),
        ("Fig6-few-clients", changed(0.6, simulated(lambda one: one.policy == NOP and one.intensity == 0.5))),
        ("Fig6-many-clients", changed(1.2, simulated(lambda one: one.policy == NOP and one.intensity == 4))),
        (
            "3-flooding-copies",
            lambda row: (
                replace(row, copy_rate=tuple(one for one in row.copy_rate))
                if row.task.setting.policy != FLOODED
                else replace(row, copy_rate=tuple(0.3 for _ in row.copy_rate))
            ),
        ),
        ("3-flooding-survival", changed(1.1, simulated(lambda one: one.policy == FLOODED))),
        ("Fig7-classes", of_classes(PRT, 0, 2)),
        ("Fig7-selective", of_classes(NOP, 0, 5)),
        ("Fig7-priority", of_classes(PRT, 1, 0.9)),
        ("Fig7-priority-apart", of_classes(PRT, 0, 0.8)),
        ("little", changed(1 + 1e-6, is_single)),
        (
            "spread-reduced",
            lambda row: replace(row, sd=(row.sd[0] * 1.02,)) if row.task.method == REDUCED and row.sd else row,
        ),
        ("spread-exact", lambda row: replace(row, sd=(row.sd[0] * 1.1,)) if row.task.method == EXACT else row),
        ("map-ours", changed(1.1, solved(BALANCED, lambda one: one.slots == 30))),
        ("map-closer", changed(0.9, solved(BALANCED, lambda one: one.brokers == 2))),
    ],
)
def test_claim_fails_in_contrary_world(claim: str, world: World) -> None:
    assert verdicts(world)[claim] is False


def test_claim_is_undecided_between_equal_policies() -> None:
    """Flooding that changes nothing neither prolongs nor shortens."""

    def alike(row: SurvivalRow) -> SurvivalRow:
        if row.task.setting.policy != FLOODED or row.task.method != SIMULATE:
            return row
        return replace(paper_row(replace(row.task, setting=replace(row.task.setting, policy=PRT))), task=row.task)

    assert verdicts(alike)["3-flooding-survival"] is None


def test_single_replication_judges_only_what_needs_no_interval() -> None:
    found = verdicts(experiment=replace(EXPERIMENT, replications=1))
    assert {name for name, holds in found.items() if holds is not None} == {
        *("Fig4-difference", "Fig4-difference-many", "Fig5-brokers", "Fig5-slots", "Eq1", "Fig6-loss"),
        *("little", "spread-reduced", "map-closer"),
    }


def test_intervals_decide_verdicts() -> None:
    above, unsure, below, unknown = Interval(1, 0.5), Interval(0.1, 0.5), Interval(-1, 0.5), Interval(1)
    assert above_everywhere([above] * 9 + [unsure]) is True
    assert above_everywhere([above, unsure]) is None
    assert above_everywhere([above] * 9 + [below]) is True
    assert above_everywhere([above] * 8 + [below] * 2) is False
    assert above_everywhere([unsure] * 9 + [below]) is None
    assert below_everywhere([below]) is True
    assert above_everywhere([above, unknown]) is None
    assert within([above], high=0.4) is False
    assert within([above], high=0.6) is None
    assert within([above], high=1.6) is True
    assert within([above, below], -1, 1.6) is None
    assert within([unknown], high=0.6) is None
    assert all_of([True, None]) is None
    assert all_of([None, False]) is False


def test_straightness_of_line_is_one() -> None:
    assert straightness({1: 3, 2: 5, 3: 7}) == pytest.approx(1)
    assert straightness({1: 0, 2: 1, 3: 0}) == pytest.approx(0)


# Reports and runs


def test_report_shows_everything_without_nan(tmp_path: Path) -> None:
    experiment = replace(QUICK, replications=1)
    rows = [paper_row(task) for task in experiment.tasks]
    written = write(rows, experiment, "newsstand reproduce survival2011", tmp_path)
    result = json.loads(json.dumps(written, allow_nan=False))
    assert {claim["id"] for claim in result["claims"]} == set(verdicts())
    assert [*result["figures"]] == ["fig4", "fig5", "fig6-loss", "fig6", "fig7", "errors"]
    for file in result["figures"].values():
        assert Path(file).read_text().count("<svg") == 1
        assert Path(file).with_suffix(".png").exists()
    page = (tmp_path / "report.html").read_text()
    assert "Errors of the models" in page
    assert "newsstand reproduce survival2011" in page
    for name, table in result["tables"].items():
        assert len((tmp_path / "tables" / f"{name}.csv").read_text().splitlines()) == 1 + len(table)


TINY = SurvivalExperiment(
    400,
    2,
    curves(SINGLE, intensity=(2.0,), publish_rate=(1.0,)),
    curves(CENTRE, slots=(3, 4), intensity=(1.0, 2.0), publish_rate=(1.0, 2.0), brokers=(1, 2)),
    (1, 2),
    SurvivalGrid((2,), (3,), (2.0,), (1.0,)),
)


def test_experiment_runs_tasks_and_continues_after_stop(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_experiment(spark, TINY, tmp_path)
    assert first == [run_task(task) for task in TINY.tasks]
    files = {file: file.read_bytes() for file in (tmp_path / "runs").iterdir()}
    assert sorted(file.name.split("-")[0] for file in files) == ["models", "simulations"]

    monkeypatch.setattr(
        "newsstand.lab.papers.survival2011.experiment.run_on_spark", lambda *_: pytest.fail("done again")
    )
    assert run_experiment(spark, TINY, tmp_path) == first
    assert {file: file.read_bytes() for file in (tmp_path / "runs").iterdir()} == files


def test_tasks_run_longest_first_and_are_stored_by_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[list[SurvivalTask]] = []

    def stopped(_: object, tasks: list[SurvivalTask], __: object) -> list[SurvivalRow]:
        if len(batches) == 2:
            raise KeyboardInterrupt
        batches.append(tasks)
        return [paper_row(task) for task in tasks]

    monkeypatch.setattr("newsstand.lab.papers.survival2011.experiment.run_on_spark", stopped)
    monkeypatch.setattr("newsstand.lab.papers.survival2011.experiment.BATCH", 5)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(spark, TINY, tmp_path)
    costs = [seconds_of(task) for batch in batches for task in batch]
    assert costs == sorted(costs, reverse=True)
    kept = [json.loads(file.read_text()) for file in (tmp_path / "runs").iterdir()]
    assert sum(map(len, kept)) == len(costs) == 10


@pytest.mark.parametrize("cores", [2, 64])
def test_batches_limit_cost_of_interruption(cores: int) -> None:
    tasks = sorted(SurvivalExperiment().tasks, key=lambda task: -seconds_of(task))
    cut = list(batches(tasks, cores))
    assert [task for batch in cut for task in batch] == tasks
    assert max(map(len, cut)) == max(20, 2 * cores)
    for batch in cut:
        assert sum(map(seconds_of, batch[:-cores])) <= 15 * cores


def test_ticks_of_integer_axes_are_integers() -> None:
    measured = SurvivalMeasurements([paper_row(task) for task in QUICK.tasks], QUICK)
    for name in ("fig5", "fig6-loss", "fig6", "fig7"):
        for panel in FIGURES[name](measured).axes:
            if panel.get_xlabel() in (AXES[axis] for axis in ("slots", "brokers", "ratio")):
                assert all(float(tick).is_integer() for tick in panel.get_xticks())


# The command


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[SurvivalExperiment, str]]:
    """A function that returns the experiment of some options, and the command of its report."""
    plans: list[tuple[SurvivalExperiment, str]] = []
    monkeypatch.setattr(
        ReportOptions, "reproduce", lambda report, experiment, *_: plans.append((experiment, report.command))
    )

    def plan(options: str) -> tuple[SurvivalExperiment, str]:
        assert run(["reproduce", "survival2011", "--out", str(tmp_path), *options.split()]) == 0
        return plans.pop()

    return plan


def test_command_names_options_of_its_experiment(planned: Callable[[str], object]) -> None:
    command = "newsstand reproduce survival2011"
    assert planned("") == (SurvivalExperiment(), command)
    assert planned("--quick") == (QUICK, f"{command} --quick")
    options = "--quick --observations 500"
    assert planned(options) == (replace(QUICK, observations=500), f"{command} {options}")


def test_grid_excludes_large_chains(
    planned: Callable[[str], tuple[SurvivalExperiment, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete, _ = planned("--quick")
    part, command = planned("--quick --most-states 286")
    assert {(one.brokers, one.slots) for one in complete.grid.settings} == {
        (n, k) for n in (2, 3, 4) for k in (5, 10)
    }
    assert {(one.brokers, one.slots) for one in part.grid.settings} == {(2, 5), (2, 10), (3, 5), (3, 10), (4, 5)}
    rows = [paper_row(task) for task in part.tasks]

    def save(_: Figure, path: Path) -> list[Path]:
        """Write no figure: that takes long, and another test sees the figures."""
        path.with_suffix(".svg").write_text("<svg></svg>")
        return [path.with_suffix(".svg")]

    monkeypatch.setattr(figures, "save", save)
    write(rows, part, command, tmp_path)
    assert "--quick --most-states 286" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("words", ["--observations 3", "--most-states 20"])
def test_command_reports_mistake_in_one_line(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["reproduce", "survival2011", "--out", str(tmp_path / "out"), *words.split()]) == 2
    error = capsys.readouterr().err
    assert words.split(maxsplit=1)[0] in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
