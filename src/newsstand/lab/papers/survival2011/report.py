"""Tables and report of survival2011."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pandas as pd

from newsstand.lab.papers.survival2011.claims import claims, extension_claims, worst_table
from newsstand.lab.papers.survival2011.experiment import (
    AXES,
    EXACT,
    LEVELS,
    NOP,
    POLICIES,
    PRT,
    REDUCED,
    SurvivalExperiment,
    SurvivalRow,
)
from newsstand.lab.papers.survival2011.figures import draw
from newsstand.lab.papers.survival2011.measurements import MODELS, POPULAR, UNPOPULAR, SurvivalMeasurements, times
from newsstand.lab.reporting.claims import report_text
from newsstand.lab.reporting.report import ReportSection, ReportTable, Row, captioned, cells, write_report
from newsstand.lab.reporting.statistics import interval
from newsstand.survival.setting import SurvivalSetting

CLASSES = {UNPOPULAR: "unpopular", POPULAR: "popular"}


def tables(measured: SurvivalMeasurements) -> dict[str, pd.DataFrame]:
    """Means and half widths of their 95 % intervals, model by model, point by point."""
    return {
        "single": pd.DataFrame(_single(measured)),
        "network": pd.DataFrame(_network(measured)),
        "classes": pd.DataFrame(_classes(measured)),
        "errors": pd.DataFrame(_compared(measured, setting) for setting in measured.experiment.grid.settings),
    }


def _numbers(setting: SurvivalSetting) -> dict[str, object]:
    return {
        "policy": str(setting.policy),
        "n": setting.brokers,
        "k": setting.slots,
        "rho": setting.intensity,
        "publish rate": setting.publish_rate,
    }


def _single(m: SurvivalMeasurements) -> Iterator[Row]:
    for curve in m.experiment.single:
        for setting in curve.points.values():
            row = {"axis": AXES[curve.axis]} | _numbers(setting)
            for what, of in times(m.simulated(setting)).items():
                row |= cells(what, interval(of))
                for method in (EXACT, REDUCED):
                    row[f"{what}, {method}"] = times(m.single(setting, method))[what][0]
            yield row


def _network(m: SurvivalMeasurements) -> Iterator[Row]:
    for curve in m.experiment.network:
        for point in curve.points.values():
            for policy in POLICIES:
                setting = replace(point, policy=policy)
                yield {"axis": AXES[curve.axis]} | _compared(m, setting)


def _compared(m: SurvivalMeasurements, setting: SurvivalSetting) -> dict[str, object]:
    simulated = m.simulated(setting)
    row = _numbers(setting)
    for what, of in (("mst", simulated.mst), ("p_loss", simulated.p_loss), ("copy rate", simulated.copy_rate)):
        row |= cells(what, interval(of))
    row["least"], row["most"] = setting.bounds
    for model, name in MODELS.items():
        known = m.has_model(setting, model)
        row[name] = m.model(setting, model) if known else None
        row[f"{name}, error"] = m.error(setting, model).mean if known else None
    return row


def _classes(m: SurvivalMeasurements) -> Iterator[Row]:
    for level, ratio, policy in product(LEVELS, sorted(m.experiment.ratios), (PRT, NOP)):
        row: dict[str, object] = {"level": level, "ratio": ratio, "policy": str(policy)}
        for place, name in CLASSES.items():
            row |= cells(name, m.of_class(place, ratio, policy, level).interval)
        yield row


def models_table(measured: SurvivalMeasurements) -> Iterator[Row]:
    """Yield Fig. 5 in numbers."""
    for at, setting in _points(measured):
        row = {"at": at, "simulated": measured.mst(setting).interval.text(digits=3, sign="")}
        for model, name in MODELS.items():
            row[name] = f"{measured.model(setting, model):.3f}"
            row[f"{name}, error (%)"] = measured.error(setting, model).interval.text(100, 1)
        yield row


def policies_table(measured: SurvivalMeasurements) -> Iterator[Row]:
    """Yield Fig. 6 in numbers."""
    for at, setting in _points(measured):
        row = {"at": at}
        for policy in POLICIES:
            row[str(policy)] = measured.mst(replace(setting, policy=policy)).interval.text(digits=2, sign="")
        row["priority (%)"] = measured.excess(setting, PRT, NOP).interval.text(100, 1)
        yield row


def _points(m: SurvivalMeasurements) -> Iterator[tuple[str, SurvivalSetting]]:
    for curve in m.experiment.network:
        yield from ((f"{AXES[curve.axis]} {x:g}", setting) for x, setting in curve.points.items())


def classes_table(measured: SurvivalMeasurements) -> Iterator[Row]:
    """Yield Fig. 7 in numbers."""
    for level, ratio in product(LEVELS, sorted(measured.experiment.ratios)):
        row: dict[str, object] = {"level": level, "ratio": ratio}
        for policy, (place, name) in product((PRT, NOP), CLASSES.items()):
            of = measured.of_class(place, ratio, policy, level).interval
            row[f"{name}, {policy}"] = of.text(digits=2, sign="")
        yield row


def write(
    rows: Sequence[SurvivalRow], experiment: SurvivalExperiment, command: str, out: Path
) -> dict[str, object]:
    """Write tables, figures and the report; the result for programs."""
    measured = SurvivalMeasurements(rows, experiment)
    drawn = draw(measured, out / "figures")
    *of_section_7, of_errors = captioned("survival2011", drawn)
    paper, beyond = report_text("survival2011").sections.values()
    of_paper = ReportSection(
        paper.title,
        paper.describe(is_single=experiment.replications == 1, experiment=experiment),
        claims(measured),
        of_section_7,
        [
            ReportTable.of("Several brokers, Fig. 5", models_table(measured)),
            ReportTable.of("Policies, Fig. 6", policies_table(measured)),
            ReportTable.of("Popular and unpopular messages, Fig. 7", classes_table(measured)),
        ],
    )
    of_extensions = ReportSection(
        beyond.title,
        beyond.describe(points=len(experiment.grid.settings)),
        extension_claims(measured),
        [of_errors],
        [ReportTable.of("Where models are farthest off", worst_table(measured))],
    )
    return write_report(
        out, "survival2011", [of_paper, of_extensions], command=command, tables=tables(measured), figures=drawn
    )
