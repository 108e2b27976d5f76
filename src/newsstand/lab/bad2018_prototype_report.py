"""What `newsstand reproduce bad2018 --part prototype` leaves in its folder."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from newsstand.lab.bad2018_prototype import CAP_S, LABELS, Measured, Rows, claims
from newsstand.lab.bad2018_report import Found, write_part
from newsstand.lab.figures import COLOURS, panels, save
from newsstand.lab.report import Listed, Section, Shown

COLUMNS = (
    "play",
    "policy",
    "budget",
    "delay_ms",
    "cap_s",
    "hit_ratio",
    "hit_ratio_online",
    "hit_ratio_late",
    "latency_ms",
    "latency_p50_ms",
    "latency_p99_ms",
    "cluster_wait_ms",
    "fetched_bytes",
    "pulled_bytes",
    "miss_bytes",
    "hit_bytes",
    "online",
    "late",
    "delivered_p50_ms",
    "delivered_p99_ms",
    "hits",
    "misses",
    "dropped",
    "consumed",
    "cached_bytes",
    "frontends",
    "backends",
    "lag_p99_ms",
    "troubles",
)
SHOWN = {
    "policy": "policy",
    "budget": "cache KB",
    "hit_ratio": "hit ratio",
    "hit_ratio_late": "late alone",
    "latency_ms": "latency ms",
    "cluster_wait_ms": "of it for the cluster ms",
    "pulled_bytes": "pulled MB",
    "miss_bytes": "missed MB",
    "fetched_bytes": "fetched MB",
}
PANELS = {
    "fig7": (("hit_ratio", "hit ratio"), ("latency_ms", "latency / NC's"), ("fetched_bytes", "bytes / NC's")),
    "late": (("hit_ratio_late", "hit ratio, late alone"), ("cluster_wait_ms", "wait for cluster / NC's")),
}
CAPTIONS = {
    "fig7": (
        "Figure 7: hit ratio, latency, bytes fetched from the data cluster",
        "NC, without a cache, at the far left; latency and bytes as shares of NC's in the same play. Latency: a "
        "subscriber's read, per result. Bytes: pulled into the caches and fetched for misses; NC pulls nothing.",
    ),
    "late": (
        "What caches differ in",
        "Hit ratio of results that were made before their reader logged in; and the part of the latency in which "
        "the broker waited for the cluster, per result, as a share of NC's.",
    ),
}


def write(rows: Rows, setting: str, command: str, out: Path) -> dict[str, object]:
    """Write tables, figures and the report, with section V if that was simulated; the result for programs."""
    measured = Measured(rows)
    table = measured.table[list(COLUMNS)]
    is_usual = (table["delay_ms"] == 0) & (table["cap_s"] == CAP_S)
    near, far, short = table[is_usual], table[table["delay_ms"] > 0], table[table["cap_s"] != CAP_S]
    for folder in ("tables", "figures"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    table.to_csv(out / "tables" / "prototype.csv", index=False)
    drawn = {name: save(_figure(measured, name), out / "figures" / name)[0] for name in PANELS}
    listed = [Listed("The prototype: measured", shown(near))]
    if len(far):
        listed.append(Listed(f"With {measured.delay_ms():.0f} ms between broker and cluster", shown(far)))
    if len(short):
        listed.append(Listed(f"With times to live of at most {short['cap_s'].max():g} s", shown(short)))
    played = Section(
        "Section VI, on a live platform",
        setting,
        claims(measured),
        [Shown(*CAPTIONS[name], file) for name, file in drawn.items()],
        listed,
    )
    return write_part("prototype", Found(command, [played], {"prototype": table}), out)


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """A table for people."""
    found = table[list(SHOWN)].sort_values(["budget", "policy"], kind="stable").copy()
    found["policy"] = [LABELS[policy] for policy in found["policy"]]
    found["budget"] = [f"{budget / 1000:g}" for budget in found["budget"]]
    for column in ("hit_ratio", "hit_ratio_late"):
        found[column] = [f"{value:.3f}" for value in found[column]]
    for column in ("latency_ms", "cluster_wait_ms"):
        found[column] = [f"{value:.1f}" for value in found[column]]
    for column in ("pulled_bytes", "miss_bytes", "fetched_bytes"):
        found[column] = [f"{value / 1e6:.2f}" for value in found[column]]
    return found.rename(columns=SHOWN)


def _figure(measured: Measured, name: str) -> Figure:
    figure, axes = panels(len(PANELS[name]))
    sizes = measured.sizes
    for panel, (what, label) in zip(axes, PANELS[name], strict=True):
        is_ratio = what.startswith("hit_ratio")
        look = measured.of if is_ratio else measured.share
        panel.plot([0], [0.0 if is_ratio else 1.0], "ks", ms=5, label="NC")
        for number, policy in enumerate(measured.policies):
            values = [look(what, policy, size) for size in sizes]
            places = range(1, len(sizes) + 1)
            panel.plot(places, values, "-o", color=COLOURS[number], label=LABELS[policy], ms=4, lw=1.3)
        panel.set_xticks(range(len(sizes) + 1), ["NC", *(f"{size / 1000:g}" for size in sizes)])
        panel.set(xlabel="cache (KB)", ylabel=label)
        panel.set_ylim(bottom=0)
    axes[0].legend(fontsize=7)
    return figure
