"""`newsstand reproduce survival2011`: tasks, verdicts, reports, and what is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import grimp
import pytest
from pyspark.sql import SparkSession

import newsstand
from newsstand.cli.main import run
from newsstand.cli.reproduce_survival2011 import command_of, experiment_of
from newsstand.lab import survival2011_beyond
from newsstand.lab.intervals import Interval
from newsstand.lab.survival2011 import (
    ALL,
    AXES,
    CENTRE,
    FLOODED,
    NOP,
    PRT,
    QUICK,
    SINGLE,
    Experiment,
    Grid,
    classes_of,
    network_curves,
    run_experiment,
    single_curves,
)
from newsstand.lab.survival2011_claims import claims
from newsstand.lab.survival2011_figures import DRAWN
from newsstand.lab.survival2011_kinds import above_everywhere, all_of, below_everywhere, within
from newsstand.lab.survival2011_measured import Measured, straightness
from newsstand.lab.survival2011_report import write
from newsstand.lab.survival2011_runs import SIMULATING, SOLVING, batches, seconds_of
from newsstand.lab.survival2011_tasks import BALANCED, EXACT, REDUCED, SIMULATE, Row, Task, done
from newsstand.survival.setting import Setting

World = Callable[[Row], Row]
EXPERIMENT = replace(Experiment(), replications=3)


# Tasks


def test_a_simulation_has_a_number_for_each_replication() -> None:
    row = done(Task(replace(CENTRE, slots=4), SIMULATE, 900, 3, classes_of(2, 2.0, None)))
    assert {len(of) for of in (row.mst, row.p_loss, row.sd, row.copy_rate, *row.quartiles, *row.class_mst)} == {3}
    for whole, low, high in zip(row.mst, *row.class_mst, strict=True):
        assert whole == pytest.approx((low + high) / 2)


def test_a_model_tells_its_spread_if_asked() -> None:
    plain, whole = (done(Task(SINGLE, EXACT, spread=spread)) for spread in (False, True))
    assert plain.mst == whole.mst
    assert plain.sd == ()
    low, middle, high = (of[0] for of in whole.quartiles)
    assert low < middle < high


def test_popularity_is_shared_as_said() -> None:
    for mean, unpopular in ((2.0, None), (None, 0.5)):
        low, high = classes_of(3, mean, unpopular)
        assert high.intensity == pytest.approx(3 * low.intensity)
        assert low.client_rate / low.intensity == pytest.approx(CENTRE.client_rate / CENTRE.intensity)
        given = (low.intensity + high.intensity) / 2 if mean else low.intensity
        assert given == pytest.approx(mean or unpopular)


def test_every_task_is_done_once_and_the_centre_is_in_all_curves() -> None:
    for experiment in (Experiment(), QUICK):
        assert len(experiment.tasks) == len(set(experiment.tasks))
        assert all(CENTRE in curve.points.values() for curve in experiment.network)
        assert all(SINGLE in curve.points.values() for curve in experiment.single)
        assert {1, 2} < set(experiment.ratios)


# Verdicts on rows written by hand


def paper_row(task: Task) -> Row:
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
    return Row(
        task,
        mst=tuple(mst * one for one in noise),
        p_loss=tuple(lost for _ in noise),
        sd=tuple(0.8 * least * one for one in noise),
        quartiles=tuple(tuple(level * least * one for one in noise) for level in (0.6, 0.9, 1.4)),
        copy_rate=tuple((0.5 if setting.policy == FLOODED else 0.4) * one for one in noise),
        mean_time=tuple(mst * one for one in noise) if task.method == SIMULATE else (),
    )


def _times(setting: Setting) -> float:
    """How many times longer than the least possible messages survive."""
    if setting.policy == ALL:
        return 1.0
    prolonged = 1 + 0.3 * (setting.brokers - 1) / setting.intensity**0.5
    if setting.policy == NOP:
        gain = (0.03 * min(1.0, setting.intensity / 2) + 0.0001 * setting.slots) * (setting.brokers - 1)
        return prolonged / (1 + gain)
    return prolonged * (0.99 if setting.policy == FLOODED and setting.brokers > 1 else 1.0)


def _class_row(task: Task, noise: list[float]) -> Row:
    low, high = task.classes
    apart = (high.intensity / low.intensity) ** 0.15
    unpopular, popular = 14 / apart, 14 * apart
    if task.setting.policy == PRT:
        unpopular, popular = 0.97 * unpopular, 1.38 * popular
    pair = tuple(tuple(one * of for of in noise) for one in (unpopular, popular))
    return Row(
        task, tuple((a + b) / 2 for a, b in zip(*pair, strict=True)), tuple(0.0 for _ in noise), class_mst=pair
    )


def measured(world: World = lambda row: row, experiment: Experiment = EXPERIMENT) -> Measured:
    return Measured([world(paper_row(task)) for task in experiment.tasks], experiment)


def verdicts(world: World = lambda row: row, experiment: Experiment = EXPERIMENT) -> dict[str, bool | None]:
    found = measured(world, experiment)
    return {claim.id: claim.holds for claim in (*claims(found), *survival2011_beyond.claims(found))}


@pytest.mark.parametrize("experiment", [EXPERIMENT, replace(QUICK, replications=3)])
def test_in_the_papers_world_every_claim_holds(experiment: Experiment) -> None:
    found = verdicts(experiment=experiment)
    assert len(found) == 32
    assert [name for name, holds in found.items() if not holds] == []


def changed(factor: float, where: Callable[[Task], bool]) -> World:
    """Other survival times of some tasks."""

    def change(row: Row) -> Row:
        return replace(row, mst=tuple(one * factor for one in row.mst)) if where(row.task) else row

    return change


def simulated(where: Callable[[Setting], bool]) -> Callable[[Task], bool]:
    return lambda task: task.method == SIMULATE and not task.classes and where(task.setting)


def solved(method: str, where: Callable[[Setting], bool] = lambda _: True) -> Callable[[Task], bool]:
    return lambda task: task.method == method and task.setting.brokers > 1 and where(task.setting)


def of_classes(policy: object, place: int, factor: float, more_than: float = 1.5) -> World:
    def change(row: Row) -> Row:
        if not row.task.classes or row.task.setting.policy != policy:
            return row
        low, high = row.task.classes
        if high.intensity < more_than * low.intensity:
            return row
        pair = list(row.class_mst)
        pair[place] = tuple(factor * one for one in pair[place])
        return replace(row, class_mst=tuple(pair))

    return change


def is_single(task: Task) -> bool:
    return task.spread


def lost(share: float, where: Callable[[Setting], bool]) -> World:
    return lambda row: replace(row, p_loss=tuple(share for _ in row.p_loss)) if where(row.task.setting) else row


def is_nop_over_brokers(setting: Setting) -> bool:
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
def test_a_claim_fails_where_its_world_does(claim: str, world: World) -> None:
    assert verdicts(world)[claim] is False


def test_what_is_the_same_in_both_worlds_is_not_decided() -> None:
    """Flooding that changes nothing neither prolongs nor shortens."""

    def alike(row: Row) -> Row:
        if row.task.setting.policy != FLOODED or row.task.method != SIMULATE:
            return row
        return replace(paper_row(replace(row.task, setting=replace(row.task.setting, policy=PRT))), task=row.task)

    assert verdicts(alike)["3-flooding-survival"] is None


def test_one_replication_judges_only_what_needs_no_interval() -> None:
    found = verdicts(experiment=replace(EXPERIMENT, replications=1))
    assert {name for name, holds in found.items() if holds is not None} == {
        *("Fig4-difference", "Fig4-difference-many", "Fig5-brokers", "Fig5-slots", "Eq1", "Fig6-loss"),
        *("little", "spread-reduced", "map-closer"),
    }


def test_intervals_decide() -> None:
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


def test_a_line_is_straight() -> None:
    assert straightness({1: 3, 2: 5, 3: 7}) == pytest.approx(1)
    assert straightness({1: 0, 2: 1, 3: 0}) == pytest.approx(0)


# Reports and runs


def test_a_report_shows_everything_and_has_no_nan(tmp_path: Path) -> None:
    experiment = replace(QUICK, replications=1)
    rows = [paper_row(task) for task in experiment.tasks]
    written = write(rows, experiment, "newsstand reproduce survival2011", tmp_path)
    told = json.loads(json.dumps(written, allow_nan=False))
    assert {claim["id"] for claim in told["claims"]} == set(verdicts())
    assert [*told["figures"]] == ["fig4", "fig5", "fig6-loss", "fig6", "fig7", "errors"]
    for file in told["figures"].values():
        assert Path(file).read_text().count("<svg") == 1
        assert Path(file).with_suffix(".png").exists()
    page = (tmp_path / "report.html").read_text()
    assert "How far models are from simulation" in page
    assert "newsstand reproduce survival2011" in page
    for name, table in told["tables"].items():
        assert len((tmp_path / "tables" / f"{name}.csv").read_text().splitlines()) == 1 + len(table)


TINY = Experiment(
    400,
    2,
    single_curves((2.0,), (1.0,)),
    network_curves((3, 4), (1.0, 2.0), (1.0, 2.0), (1, 2)),
    (1, 2),
    Grid((2,), (3,), (2.0,), (1.0,)),
)


def test_an_experiment_comes_to_what_its_tasks_do_and_goes_on_where_it_stopped(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_experiment(spark, TINY, tmp_path)
    assert first == [done(task) for task in TINY.tasks]
    files = {file: file.read_bytes() for file in (tmp_path / "runs").iterdir()}
    assert sorted(file.name.split("-")[0] for file in files) == ["models", "simulations"]

    monkeypatch.setattr("newsstand.lab.survival2011_runs.Runs._done", lambda *_: pytest.fail("done again"))
    assert run_experiment(spark, TINY, tmp_path) == first
    assert {file: file.read_bytes() for file in (tmp_path / "runs").iterdir()} == files


def test_what_takes_longest_is_done_first_and_kept_as_it_comes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[list[Task]] = []

    def stopped(_: object, tasks: list[Task]) -> list[Row]:
        if len(batches) == 2:
            raise KeyboardInterrupt
        batches.append(tasks)
        return [paper_row(task) for task in tasks]

    monkeypatch.setattr("newsstand.lab.survival2011_runs.Runs._done", stopped)
    monkeypatch.setattr("newsstand.lab.survival2011_runs.BATCH", 5)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(spark, TINY, tmp_path)
    costs = [seconds_of(task) for batch in batches for task in batch]
    assert costs == sorted(costs, reverse=True)
    kept = [json.loads(file.read_text()) for file in (tmp_path / "runs").iterdir()]
    assert sum(map(len, kept)) == len(costs) == 10


@pytest.mark.parametrize("cores", [2, 64])
def test_an_interruption_costs_little(cores: int) -> None:
    tasks = sorted(Experiment().tasks, key=lambda task: -seconds_of(task))
    cut = list(batches(tasks, cores))
    assert [task for batch in cut for task in batch] == tasks
    assert max(map(len, cut)) == max(20, 2 * cores)
    for batch in cut:
        assert sum(map(seconds_of, batch[:-cores])) <= 15 * cores


def test_whole_numbers_have_no_ticks_between_them() -> None:
    measured = Measured([paper_row(task) for task in QUICK.tasks], QUICK)
    for name in ("fig5", "fig6-loss", "fig6", "fig7"):
        for panel in DRAWN[name](measured).axes:
            if panel.get_xlabel() in (AXES[axis] for axis in ("slots", "brokers", "ratio")):
                assert all(float(tick).is_integer() for tick in panel.get_xticks())


def test_runs_are_known_by_all_sources_that_they_depend_on() -> None:
    package = Path(newsstand.__file__).parent
    imports = grimp.build_graph("newsstand", cache_dir=None)
    for patterns, roots in (
        (SIMULATING, ("newsstand.lab.survival",)),
        (SOLVING, ("newsstand.survival.methods",)),
    ):
        digested = {source for pattern in patterns for source in package.glob(pattern)}
        needed = {module for root in roots for module in {root} | imports.find_upstream_modules(root)}
        sources = {name: package.parent / f"{name.replace('.', '/')}.py" for name in needed}
        left_out = {name for name, source in sources.items() if source.exists() and source not in digested}
        assert {name for name in left_out if not name.startswith("newsstand.spark.")} <= {"newsstand.errors"}


# The command


def test_the_report_names_its_command() -> None:
    assert command_of(False, None) == "newsstand reproduce survival2011"
    assert command_of(True, 500) == "newsstand reproduce survival2011 --quick --observations 500"
    assert experiment_of(True, None) == QUICK
    assert experiment_of(False, 500).observations == 500


def test_large_chains_are_left_out_where_asked(tmp_path: Path) -> None:
    whole, part = (experiment_of(True, most_states=most) for most in (None, 286))
    assert {(one.brokers, one.slots) for one in whole.grid.settings} == {
        (n, k) for n in (2, 3, 4) for k in (5, 10)
    }
    assert {(one.brokers, one.slots) for one in part.grid.settings} == {(2, 5), (2, 10), (3, 5), (3, 10), (4, 5)}
    rows = [paper_row(task) for task in part.tasks]
    write(rows, part, command_of(True, most_states=286), tmp_path)
    assert "--quick --most-states 286" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("words", ["--observations 3", "--most-states 20"])
def test_a_mistake_is_one_line(words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "survival2011", "--out", str(tmp_path / "out"), *words.split()]) == 2
    told = capsys.readouterr().err
    assert words.split(maxsplit=1)[0] in told
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()
