"""The numbers behind the figures of survival2011."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from newsstand.lab.intervals import interval
from newsstand.lab.survival2011 import AXES, LEVELS, NOP, POLICIES, PRT
from newsstand.lab.survival2011_measured import MODELS, POPULAR, SPREAD, UNPOPULAR, Measured
from newsstand.lab.survival2011_tasks import EXACT, REDUCED
from newsstand.survival.setting import Setting


def tables(measured: Measured) -> dict[str, pd.DataFrame]:
    """Means and half widths of their 95 % intervals, model by model, point by point."""
    return {
        "single": pd.DataFrame(_single(measured)),
        "network": pd.DataFrame(_network(measured)),
        "classes": pd.DataFrame(_classes(measured)),
        "errors": pd.DataFrame(_errors(measured)),
    }


def _numbers(setting: Setting) -> dict[str, object]:
    return {
        "policy": str(setting.policy),
        "n": setting.brokers,
        "k": setting.slots,
        "rho": setting.intensity,
        "publish rate": setting.publish_rate,
    }


def _single(m: Measured) -> Iterator[dict[str, object]]:
    for curve in m.experiment.single:
        for setting in curve.points.values():
            row = {"axis": AXES[curve.axis]} | _numbers(setting)
            simulated = m.simulated(setting)
            values = (simulated.mean_time, simulated.sd, *simulated.quartiles)
            for place, (what, of) in enumerate(zip(("mst", *SPREAD), values, strict=True)):
                mean = interval(of)
                row |= {what: mean.mean, f"{what} ±": mean.half}
                for method in (EXACT, REDUCED):
                    solved = m.single(setting, method)
                    row[f"{what}, {method}"] = (solved.mst, solved.sd, *solved.quartiles)[place][0]
            yield row


def _network(m: Measured) -> Iterator[dict[str, object]]:
    for curve in m.experiment.network:
        for point in curve.points.values():
            for policy in POLICIES:
                setting = replace(point, policy=policy)
                yield {"axis": AXES[curve.axis]} | _compared(m, setting)


def _errors(m: Measured) -> Iterator[dict[str, object]]:
    for setting in m.experiment.grid.settings:
        yield _compared(m, setting)


def _compared(m: Measured, setting: Setting) -> dict[str, object]:
    simulated = m.simulated(setting)
    row = _numbers(setting)
    for what, of in (("mst", simulated.mst), ("p_loss", simulated.p_loss), ("copy rate", simulated.copy_rate)):
        mean = interval(of)
        row |= {what: mean.mean, f"{what} ±": mean.half}
    row["least"], row["most"] = setting.bounds
    for model, name in MODELS.items():
        known = m.has_model(setting, model)
        row[name] = m.model(setting, model) if known else None
        row[f"{name}, error"] = m.error(setting, model).mean if known else None
    return row


def _classes(m: Measured) -> Iterator[dict[str, object]]:
    for level in LEVELS:
        for ratio in sorted(m.experiment.ratios):
            for policy in (PRT, NOP):
                row: dict[str, object] = {"level": level, "ratio": ratio, "policy": str(policy)}
                for place, name in ((UNPOPULAR, "unpopular"), (POPULAR, "popular")):
                    mean = interval(m.classes(ratio, policy, level).class_mst[place])
                    row |= {name: mean.mean, f"{name} ±": mean.half}
                yield row


def models_table(measured: Measured) -> pd.DataFrame:
    """Fig. 5 in numbers, for people."""
    rows = []
    for curve in measured.experiment.network:
        for x, setting in curve.points.items():
            row = {"at": f"{AXES[curve.axis]} {x:g}", "simulated": measured.mst(setting).told(digits=3, sign="")}
            for model, name in MODELS.items():
                row[name] = f"{measured.model(setting, model):.3f}"
                row[f"{name}, error (%)"] = measured.error(setting, model).told(100, 1)
            rows.append(row)
    return pd.DataFrame(rows)


def policies_table(measured: Measured) -> pd.DataFrame:
    """Fig. 6 in numbers, for people."""
    rows = []
    for curve in measured.experiment.network:
        for x, setting in curve.points.items():
            row = {"at": f"{AXES[curve.axis]} {x:g}"}
            for policy in POLICIES:
                row[str(policy)] = measured.mst(replace(setting, policy=policy)).told(digits=2, sign="")
            row["priority (%)"] = measured.over(setting, PRT, NOP).told(100, 1)
            rows.append(row)
    return pd.DataFrame(rows)


def classes_table(measured: Measured) -> pd.DataFrame:
    """Fig. 7 in numbers, for people."""
    rows = []
    for level in LEVELS:
        for ratio in sorted(measured.experiment.ratios):
            row: dict[str, object] = {"level": level, "ratio": ratio}
            for policy in (PRT, NOP):
                for place, name in ((UNPOPULAR, "unpopular"), (POPULAR, "popular")):
                    of = interval(measured.classes(ratio, policy, level).class_mst[place])
                    row[f"{name}, {policy}"] = of.told(digits=2, sign="")
            rows.append(row)
    return pd.DataFrame(rows)
