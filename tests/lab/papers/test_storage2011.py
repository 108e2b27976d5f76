"""`newsstand reproduce storage2011`: workloads, plans, the overlay, verdicts, stored runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as with_settings
from hypothesis import strategies as some
from pyspark.sql import SparkSession
from support.profiles import examples

from newsstand.cli.lab.reproduce import ReportOptions
from newsstand.cli.main import run
from newsstand.lab.papers.storage2011.claims import claims, extension_claims
from newsstand.lab.papers.storage2011.experiment import (
    CURVES,
    QUICK,
    TREES,
    PlanningCurve,
    PlanningExperiment,
    PlanningMeasurements,
    run_experiment,
    thinned,
)
from newsstand.lab.papers.storage2011.plans import (
    EXACT,
    OPTIMUM,
    PAPER,
    REASSIGNING,
    RELAXED,
    SWAP,
    PlanningRow,
    PlanningSetting,
    PlanningStage,
    PlanningStep,
    PlanningTask,
    mean_hops_of_requests,
    neighbourhood,
    problem_of,
    run_task,
    shared_out,
    zipf,
)
from newsstand.lab.papers.storage2011.report import write
from newsstand.lab.reporting import figures
from newsstand.overlay.topology import random_tree
from newsstand.planning.problem import Plan, mean_hops
from newsstand.planning.replication import replicas

SMALL = PlanningSetting(nodes=30, storages=6, capacity=3)
LATER = replace(SMALL, planned_for=-1.0)
PINNED = {
    "srl": 2.168789,
    "wrr": 2.168789,
    "rnd": 2.118082,
    "grd_opt": 1.706314,
    SWAP: 1.909095,
    OPTIMUM: 1.694933,
}
"""Mean hops of seed 1."""


# Workloads


def test_uniform_popularity_is_one_tenth_each() -> None:
    assert zipf(10, 0) == pytest.approx([0.1] * 10)


@given(some.integers(1, 20), some.floats(0, 3))
def test_negative_exponent_reverses_ranks(topics: int, exponent: float) -> None:
    assert zipf(topics, -exponent) == zipf(topics, exponent)[::-1]
    assert sum(zipf(topics, exponent)) == pytest.approx(1)


@given(some.lists(some.integers(0, 1000), min_size=1, max_size=12), some.integers(1, 60), some.integers(1, 8))
def test_storage_room_is_shared_by_demand(totals: list[int], room: int, most: int) -> None:
    kept = shared_out(np.array(totals), room, most)
    assert sum(kept) == max(len(totals), min(room, most * len(totals)))
    assert all(1 <= k <= most for k in kept)
    for one, k in zip(totals, kept, strict=True):
        assert all(k >= other_k for other, other_k in zip(totals, kept, strict=True) if one > other)


@given(some.integers(1, 40), some.integers(0, 99), some.data())
def test_neighbourhood_has_nearest_brokers(nodes: int, seed: int, data: some.DataObject) -> None:
    tree = random_tree(nodes, np.random.default_rng(seed))
    centre, brokers = data.draw(some.integers(1, nodes)), data.draw(some.integers(1, nodes))
    inside, hops = neighbourhood(tree, centre, brokers), tree.hops_from(centre)
    assert len(set(inside)) == brokers
    assert centre in inside
    outside = set(hops) - set(inside)
    assert not outside or max(hops[node] for node in inside) <= min(hops[node] for node in outside)


def test_replicas_are_those_of_section_6_1_1() -> None:
    problem = problem_of(PlanningSetting(), 1)
    assert replicas(problem) == (20, 10, 7, 5, 4, 3, 3, 3, 2, 2)
    assert problem.storages == 20
    assert problem_of(PlanningSetting(capacity=1), 1).storages == 59
    assert float(problem.totals.sum() * problem.unit) == pytest.approx(2500)


def test_replicas_fill_all_room_of_given_storages() -> None:
    assert replicas(problem_of(PlanningSetting(storages=20, s_p=0.0), 1)) == (10,) * 10
    assert sum(replicas(problem_of(PlanningSetting(storages=10), 1))) == 50


def test_locality_sets_number_of_asking_brokers_not_their_rates() -> None:
    wide = problem_of(PlanningSetting(storages=20, s_p=0.0, s_l=0.0), 1)
    assert [(row > 0).sum() for row in wide.demand] == [10] * 10
    narrow = problem_of(PlanningSetting(storages=20, s_p=0.0, s_l=1.0), 1)
    assert [(row > 0).sum() for row in narrow.demand] == [34, 17, 11, 9, 7, 6, 5, 4, 4, 3]
    assert narrow.topology == wide.topology
    assert all(narrow.demand[0][wide.demand[0] > 0] > 0)  # a larger neighbourhood of the same centre


def test_problem_depends_on_seed() -> None:
    local = replace(SMALL, s_l=0.5)
    assert np.array_equal(problem_of(local, 3).demand, problem_of(local, 3).demand)
    assert problem_of(local, 3).topology != problem_of(local, 4).topology


def test_setting_before_differs_in_one_exponent() -> None:
    assert replace(LATER, s_p=0.5).before() == replace(SMALL, s_p=-1.0)
    assert replace(LATER, s_p=0.0, s_l=0.5).before() == replace(SMALL, s_p=0.0, s_l=-1.0)
    assert SMALL.before() == SMALL


# Plans


def hops_of(rows: list[PlanningRow]) -> dict[str, float]:
    return {row.method: row.mean_hops for row in rows}


@pytest.mark.parametrize(
    "setting", [SMALL, replace(SMALL, s_p=0.0, s_l=1.0), PlanningSetting(nodes=30, capacity=2)]
)
def test_plans_stay_above_bounds(setting: PlanningSetting) -> None:
    planned = hops_of(run_task(PlanningTask(setting, PlanningStep.PLANNED), 1))
    (relaxed,) = run_task(PlanningTask(setting, PlanningStep.RELAXED), 1)
    (exact,) = run_task(PlanningTask(setting, PlanningStep.EXACT, 60.0), 1)
    assert planned[OPTIMUM] <= planned["grd_opt"]
    assert exact.gap == 0
    assert planned[OPTIMUM] <= exact.mean_hops <= min(planned[SWAP], relaxed.mean_hops)
    assert relaxed.gap is not None
    assert relaxed.mean_hops * (1 - relaxed.gap) <= exact.mean_hops * (1 + 1e-6)


def test_plans_of_seed_are_pinned() -> None:
    rows = run_task(PlanningTask(SMALL, PlanningStep.PLANNED), 1)
    assert {row.method: round(row.mean_hops, 6) for row in rows} == PINNED
    assert all(row.traffic == pytest.approx(row.mean_hops * 25 * 30) for row in rows)


@pytest.mark.parametrize("setting", [replace(LATER, s_p=-1.0), replace(LATER, s_p=0.0, s_l=-1.0)])
def test_reassignment_without_new_demand_changes_nothing(setting: PlanningSetting) -> None:
    rows = run_task(PlanningTask(setting, PlanningStep.REASSIGNED), 2)
    for method in REASSIGNING:
        hops = {row.stage: row.mean_hops for row in rows if row.method == method}
        assert hops[PlanningStage.STAYED] == hops[PlanningStage.PLANNED]
        assert hops[PlanningStage.REASSIGNED] <= hops[PlanningStage.PLANNED] or method != SWAP


@given(some.integers(0, 999), some.sampled_from([None, 0.0, 1.0]), some.sampled_from([*TREES]))
@with_settings(max_examples=examples(15))
def test_overlay_agrees_with_cost_model(seed: int, s_l: float | None, tree: str) -> None:
    """For any assignment, not only good ones."""
    problem = problem_of(PlanningSetting(nodes=14, storages=4, capacity=4, s_l=s_l, tree=tree), seed)
    draw = np.random.default_rng(seed)
    keepers = {
        name: tuple(map(int, draw.choice(14, draw.integers(0, 4), False) + 1)) for name in problem.topics[1:]
    }
    plan = Plan(tuple(range(1, 15)), {problem.topics[0]: (3,)} | keepers)
    assert float(mean_hops_of_requests(problem, plan)) == mean_hops(problem, plan.assignment)


# Claims, in a world where the paper is right


def paper_hops(setting: PlanningSetting) -> float:
    """Of grd_opt, when storages are planned."""
    if setting.s_l is not None:
        return 0.3 if setting.planned_for is None else 1.5
    if setting.storages is not None:
        return 1.3 if setting.storages == 20 else 2.0
    return 2 * (setting.nodes / 100) ** 0.5 * (5 / setting.capacity) ** 0.1 * (2 / setting.least) ** 0.5


OVER_GREEDY = {
    "srl": 1.085,
    "wrr": 1.03,
    "rnd": 1.24,
    "grd_opt": 1.0,
    OPTIMUM: 0.97,
    SWAP: 0.98,
    RELAXED: 0.971,
    EXACT: 0.97,
}
GAINS = {-1.0: 0.0, -0.75: 0.05, -0.5: 0.08}
World = Callable[[PlanningRow], PlanningRow]


def paper_rows(experiment: PlanningExperiment) -> Iterator[PlanningRow]:
    for seed in experiment.seeds:
        for curve in experiment.drawn:
            for x, setting in curve.points.items():
                yield from _paper_row(seed, curve, x, setting)
        for tree in experiment.other_trees:
            if tree != experiment.tree:
                for setting in experiment.variants[tree]:
                    yield from (
                        PlanningRow(seed, setting, method, PlanningStage.PLANNED, 1.0, 2500.0, 20)
                        for method in (*PAPER, SWAP)
                    )
        for setting in experiment.overlays:
            hops = OVER_GREEDY["wrr"] * paper_hops(setting) * (1 + seed / 100)
            for stage in (PlanningStage.PLANNED, PlanningStage.CARRIED_OUT):
                yield PlanningRow(seed, setting, "wrr", stage, hops, 1000 * hops, 20)


def _paper_row(seed: int, curve: PlanningCurve, x: float, setting: PlanningSetting) -> Iterator[PlanningRow]:
    hops = paper_hops(setting) * (1 + seed / 100)
    requests = 25.0 * setting.nodes if setting.s_l is None else 2.5 * setting.nodes
    if setting.planned_for is not None:
        gain = GAINS.get(x, 0.2 if x < 1 else 0.54) if curve.figure == 9 or x < -0.5 else 0.2 if x < 1 else 0.54
        for method in REASSIGNING:
            planned = OVER_GREEDY[method] * hops
            later = planned * (0.9 if method == SWAP else 1.05)
            for stage, of in (
                (PlanningStage.PLANNED, planned),
                (PlanningStage.REASSIGNED, later),
                (PlanningStage.STAYED, later / (1 - gain)),
            ):
                yield PlanningRow(seed, setting, method, stage, of, of * requests, 20)
        return
    for method, over in OVER_GREEDY.items():
        times = 5.0 if curve.figure == 8 and method not in ("grd_opt", OPTIMUM) else 1.0
        of = over * times * hops
        given_storages = setting.storages or 20
        installed = 3.2 * given_storages if method == "grd_opt" else given_storages
        gap = 0.001 if method in (RELAXED, EXACT) else None
        yield PlanningRow(
            seed, setting, method, PlanningStage.PLANNED, of, of * requests, round(installed), gap=gap
        )


EXPERIMENT = PlanningExperiment(seeds=(1, 2, 3), seeds_of_exact=3)


def verdicts(
    world: World = lambda row: row, experiment: PlanningExperiment = EXPERIMENT
) -> dict[str, bool | None]:
    measured = PlanningMeasurements([world(row) for row in paper_rows(experiment)], experiment)
    return {claim.id: claim.holds for claim in (*claims(measured), *extension_claims(measured))}


def test_claims_hold_in_world_of_paper() -> None:
    found = verdicts()
    assert len(found) == 31
    assert [name for name, holds in found.items() if not holds] == []


def changed(
    method: str,
    factor: float,
    where: Callable[[PlanningSetting], bool] = lambda _: True,
    stage: PlanningStage = PlanningStage.PLANNED,
) -> World:
    def change(row: PlanningRow) -> PlanningRow:
        if row.method != method or row.stage != stage or not where(row.setting):
            return row
        return replace(row, mean_hops=row.mean_hops * factor, traffic=row.traffic * factor)

    return change


def is_open(setting: PlanningSetting) -> bool:
    return setting.storages is None


def is_local(setting: PlanningSetting) -> bool:
    return setting.s_l is not None and setting.planned_for is None


@pytest.mark.parametrize(
    ("claim", "world"),
    [
        ("6.1.1-rnd", changed("rnd", 0.8, lambda s: s.capacity == 3)),
        ("6.1.1-rnd-range", changed("rnd", 1.3, lambda s: s.nodes == 200)),
        ("6.1.1-grd", changed("srl", 1.03, lambda s: s.least == 5)),
        ("6.1.1-wrr-srl-better", changed("wrr", 1.06, lambda s: s.least == 5)),
        ("6.1.1-wrr-srl", changed("srl", 0.98, is_open)),
        ("Fig4-hops", changed("srl", 0.1, lambda s: s.nodes == 200)),
        ("Fig4-traffic", changed("srl", 0.1, lambda s: s.nodes == 200)),
        ("Fig4-slower", changed("grd_opt", 3, lambda s: s.nodes == 200)),
        ("Fig5-hops", changed("rnd", 1.5, lambda s: s.capacity == 7)),
        ("Fig6-hops", changed("rnd", 2, lambda s: s.least == 3)),
        ("same-form", lambda row: replace(row, traffic=row.traffic * row.setting.capacity)),
        ("Fig7-rnd", changed("rnd", 0.8, lambda s: s.storages == 10)),
        ("Fig7-rnd-range", changed("rnd", 0.97, lambda s: s.storages == 10)),
        ("Fig7-grd", changed("srl", 1.02, lambda s: s.storages == 10)),
        ("Fig8-four-times", changed("grd_opt", 1.5, is_local)),
        ("Fig8-storages", lambda row: replace(row, storages=20)),
        ("6.1.2-hops", changed("srl", 2, lambda s: s.storages == 10)),
        ("abstract", changed("srl", 1.1, is_open)),
        ("6.2-gain", changed("srl", 1.6, lambda s: s.s_l == 1.0, PlanningStage.STAYED)),
        ("6.2-replanned", changed("wrr", 1.04, stage=PlanningStage.REASSIGNED)),
        ("6.2-replanned-conclusion", changed("wrr", 1.06, stage=PlanningStage.REASSIGNED)),
        ("6.2-popularity", changed("wrr", 1.2, lambda s: s.s_p == -0.5, PlanningStage.STAYED)),
        ("6.2-locality", changed("wrr", 0.9, lambda s: s.s_l == 0.25, PlanningStage.STAYED)),
        ("swap-wrr", changed(SWAP, 1.1, lambda s: s.least == 4)),
        ("swap-srl", changed(SWAP, 1.2, lambda s: s.least == 4)),
        ("swap-closed", changed(SWAP, 1.04, lambda s: s.least == 4)),
        (
            "relaxed-closed",
            lambda row: replace(row, mean_hops=1.02 * row.mean_hops, gap=0.021) if row.method == RELAXED else row,
        ),
        ("exact", lambda row: replace(row, gap=0.02) if row.method == EXACT else row),
        ("grd_opt-optimum", changed("grd_opt", 1.1, lambda s: s.least == 4)),
        ("swap-reassigned", changed(SWAP, 1.3, lambda s: s.s_p == 0.5, PlanningStage.REASSIGNED)),
        ("overlay", changed("wrr", 1.01, stage=PlanningStage.CARRIED_OUT)),
    ],
)
def test_claim_fails_in_contrary_world(claim: str, world: World) -> None:
    assert verdicts(world)[claim] is False


def test_single_run_judges_only_what_holds_in_every_run() -> None:
    found = verdicts(experiment=replace(EXPERIMENT, seeds=(1,)))
    assert {name for name, holds in found.items() if holds is not None} == {"same-form", "exact", "overlay"}


def test_trends_are_not_judged_at_one_point() -> None:
    curves = tuple(replace(curve, points=dict([*curve.points.items()][:1])) for curve in EXPERIMENT.curves)
    found = verdicts(experiment=replace(EXPERIMENT, curves=curves))
    assert not found.keys() & {"Fig4-hops", "Fig4-traffic", "Fig4-slower", "Fig5-hops", "Fig6-hops"}
    assert found["6.1.1-rnd"] is True


def test_grd_opt_without_hops_is_out_of_reach() -> None:
    found = verdicts(changed("grd_opt", 0, is_local))
    assert found["Fig8-four-times"] is True


# Reports and runs


def test_report_shows_everything_without_nan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "save", partial(figures.save, endings=(".svg",)))  # others draw PNG
    experiment = replace(EXPERIMENT, seeds=(1, 2))
    written = write(list(paper_rows(experiment)), experiment, "newsstand reproduce storage2011", tmp_path)
    result = json.loads(json.dumps(written, allow_nan=False))
    assert {claim["id"] for claim in result["claims"]} == set(verdicts())
    assert [*result["figures"]] == [f"fig{number}" for number in range(4, 11)]
    assert all(Path(file).exists() for file in result["figures"].values())
    page = (tmp_path / "report.html").read_text()
    assert "Figure 10: locality changed" in page
    assert "newsstand reproduce storage2011" in page
    assert len((tmp_path / "tables" / "plans.csv").read_text().splitlines()) == 1 + len(result["tables"]["plans"])


TINY = PlanningExperiment(
    seeds=(1, 2),
    curves=(
        PlanningCurve(7, "s_p", "M = 6", {0.0: replace(SMALL, s_p=0.0), 1.0: SMALL}),
        PlanningCurve(9, "s_p", "", {1.0: replace(LATER, s_p=1.0)}),
    ),
    seeds_of_relaxed=1,
    seeds_of_exact=0,
    other_trees=(),
)


def test_experiment_runs_tasks_and_continues_after_stop(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_experiment(spark, TINY, tmp_path)
    assert first == [row for seed in TINY.seeds for task in TINY.tasks(seed) for row in run_task(task, seed)]
    files = {file: file.read_bytes() for file in (tmp_path / "runs").iterdir()}
    assert len(files) == 2

    monkeypatch.setattr(
        "newsstand.lab.papers.storage2011.experiment.run_on_spark", lambda *_: pytest.fail("done again")
    )
    assert run_experiment(spark, TINY, tmp_path) == first
    assert {file: file.read_bytes() for file in (tmp_path / "runs").iterdir()} == files


def test_tasks_are_run_once() -> None:
    tasks = PlanningExperiment().tasks(1)
    assert len(tasks) == len(set(tasks))
    assert [task.part for task in tasks[:4]] == [PlanningStep.EXACT] * 4
    assert {task.part for task in PlanningExperiment().tasks(20)} == {
        PlanningStep.PLANNED,
        PlanningStep.REASSIGNED,
        PlanningStep.OVERLAY,
    }


def test_quick_run_keeps_ends_that_claims_use() -> None:
    curves = {curve.name: [*curve.points] for curve in thinned(CURVES)}
    assert curves["9"] == [-1.0, -0.5, 0.0, 0.5, 1.0]
    assert all(len(points) > 2 for points in curves.values())


# The command


@pytest.mark.parametrize(
    ("options", "experiment"),
    [
        ("", PlanningExperiment()),
        (" --quick --tree random-tree", replace(QUICK, tree="random-tree")),
        (
            " --runs 5 --exact 0 --time-limit 30",
            PlanningExperiment(seeds=(1, 2, 3, 4, 5), seeds_of_exact=0, exact_limit_s=30.0),
        ),
    ],
)
def test_command_names_options_of_its_experiment(
    options: str, experiment: PlanningExperiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[tuple[PlanningExperiment, str]] = []
    monkeypatch.setattr(
        ReportOptions, "reproduce", lambda report, planned, *_: plans.append((planned, report.command))
    )
    assert run(["reproduce", "storage2011", "--out", str(tmp_path), *options.split()]) == 0
    assert plans == [(experiment, f"newsstand reproduce storage2011{options}")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--quick --runs 3", "--quick: remove --runs and --exact"),
        ("--tree oak", "--tree oak: must be one of recursive-tree"),
    ],
)
def test_command_reports_mistake_in_one_line(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["reproduce", "storage2011", "--out", str(tmp_path / "out"), *words.split()]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
