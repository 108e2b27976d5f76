"""The apps of the scenario, written into a folder: that of the demo, and that of the experiment of section VI.

Time passes faster in both than in the paper.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from newsstand.config.files import toml_table
from newsstand.scenarios.emergencies.city import City

NAMES = ("north", "south", "east", "west")
"""The names of the demo's brokers, which are also their places."""

SHORTEST_S = 1.0
"""The shortest period in the experiment: seven channels share one machine with all subscribers."""

WINDOW_S = 300.0
"""Growth is measured, and times to live are computed, every five minutes (section V)."""

CAP_S = 3600.0
"""The longest time to live, unless a scheme has its own."""


@dataclass(frozen=True)
class Scheme:
    """A broker of the experiment: its policy and the bytes of its caches."""

    policy: str
    budget: int
    delay_ms: float = 0.0
    """The delay between the broker and the cluster."""
    cap_s: float = CAP_S
    """The longest time to live, in seconds of the trace."""

    @property
    def name(self) -> str:
        """The name of the broker."""
        delay = f"-{self.delay_ms:.0f}ms" if self.delay_ms else ""
        return f"{self.policy}-{self.budget}{delay}" + (f"-{self.cap_s:.0f}s" if self.cap_s != CAP_S else "")


def write_app(folder: Path, *, speed: float, brokers: int, budget: int) -> None:
    """Write the app of the demo: its periods are `speed` times as short, and its brokers have small caches."""
    # Busy brokers on one machine may be silent for long without being dead.
    coordinator = '\n[coordinator]\npolicy = "miles"\nlease_s = 15\n'
    tables = (_demo_broker(number, budget) for number in range(brokers))
    _write(folder, _scenario() + coordinator, tables, speed=speed, shortest_s=0.0)


def write_experiment(folder: Path, schemes: Sequence[Scheme], *, factor: float) -> None:
    """Write the app of the experiment: time passes `factor` times as fast, and each scheme has a broker."""
    tables = (
        {
            "name": scheme.name,
            "results_policy": scheme.policy,
            "results_budget": scheme.budget,
            "results_window_ms": round(WINDOW_S * 1000 / factor),
            "results_cap_ms": round(scheme.cap_s * 1000 / factor),
            "results_expiry": "object" if scheme.policy == "exp" else "cache",
            "access_log": False,
        }
        for scheme in schemes
    )
    _write(folder, _scenario().partition("# Not in the paper")[0], tables, speed=factor, shortest_s=SHORTEST_S)


def _scenario() -> str:
    """Return the app of the scenario without rules that bind values: in the paper, people follow one another."""
    text = resources.files(__package__).joinpath("newsstand.toml").read_text(encoding="utf-8")
    return re.sub(r"^bind = .*\n", "", text, flags=re.M)


def _write(
    folder: Path, text: str, brokers: Iterable[Mapping[str, object]], *, speed: float, shortest_s: float
) -> None:
    def shorter(found: re.Match[str]) -> str:
        return f"period = {max(shortest_s, float(found[1]) / speed):g}"

    text = re.sub(r'^period = "(\d+)s"$', shorter, text, flags=re.M)
    # All people of the scenario register from this machine.
    text += "\n[limits]\nregistrations_per_hour = 1000000\n"
    text += "".join(f"\n{toml_table('[brokers]', broker)}" for broker in brokers)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "newsstand.toml").write_text(text, "utf-8")


def _demo_broker(number: int, budget: int) -> dict[str, object]:
    edges = City.bounds()
    name = NAMES[number] if number < len(NAMES) else f"edge{number + 1}"
    place = {"lat": (edges["north"] + edges["south"]) / 2, "lon": (edges["east"] + edges["west"]) / 2}
    if name in edges:
        side = "lat" if name in ("north", "south") else "lon"
        place[side] = (place[side] + edges[name]) / 2
    return {"name": name, "results_budget": budget, **{side: round(at, 4) for side, at in place.items()}}
