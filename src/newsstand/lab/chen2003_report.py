"""What `newsstand reproduce chen2003` leaves in its folder."""

from __future__ import annotations

from pathlib import Path

from newsstand.lab import chen2003_figures
from newsstand.lab.chen2003 import Experiment, Results
from newsstand.lab.chen2003_claims import claims
from newsstand.lab.report import Listed, Shown, records, write_report

CAPTIONS = {
    "beta_sweep": ("The choice of β (section 5.1)", "Hit ratio over β for the three strategies that use it."),
    "fig3": (
        "Figure 3: dual methods and dual caches, NEWS",
        "Means over the seeds; bars: standard deviation.",
    ),
    "fig4": ("Figure 4: all methods, SQ = 1", "Means over the seeds; bars: standard deviation."),
    "fig5": (
        "Figure 5: subscription quality, capacity 5 %",
        "Hit ratio as subscriptions predict requests worse.",
    ),
    "fig6": ("Figure 6: hit ratio by the hour, capacity 5 %", "SQ = 1, all seeds together."),
    "fig7": (
        "Figure 7: traffic by the hour, capacity 5 %",
        "Pages fetched on a miss plus pages pushed; NEWS.",
    ),
}


def write(results: Results, experiment: Experiment, out: Path) -> dict[str, object]:
    """Write tables, figures and the report; returns the machine-readable result."""
    verdicts = claims(results)
    drawn = chen2003_figures.draw(results, out / "figures")
    tables = chen2003_figures.tables(results)
    (out / "tables").mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.to_csv(out / "tables" / f"{name}.csv", index=False)
    seeds = ", ".join(map(str, experiment.seeds))
    write_report(
        out / "report.html",
        title="Content Distribution for Publish/Subscribe Services, reproduced",
        lead=f"Chen, LaPaugh and Singh (2003), section 5: {experiment.requests:,} requests over "
        f"{experiment.proxies} proxies a trace, seeds {seeds}, one generator setting for both traces and all "
        "strategies, the betas of section 5.1. Means over the seeds.",
        claims=verdicts,
        figures=[Shown(*CAPTIONS[name], file) for name, file in drawn.items()],
        tables=[Listed("Table 2: relative improvement over GD* in per cent, capacity 5 %", tables["table2"])],
        command="newsstand reproduce chen2003",
    )
    return {
        "claims": [claim.as_dict() for claim in verdicts],
        "tables": {name: records(table) for name, table in tables.items() if name != "fig6_fig7"},
        "figures": {name: str(file) for name, file in drawn.items()},
        "report": str(out / "report.html"),
    }
