"""The app of the experiment with the prototype: the scenario's channels, and a broker for each caching scheme."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from newsstand.scenarios.emergencies.app import EVERYBODY_AT_ONE_ADDRESS, unbound

SHORTEST_S = 1.0
"""No period becomes shorter: seven channels share one machine with all that read them."""

WINDOW_S = 300.0
"""Growth is measured, and times to live are set anew, every five minutes (section V)."""

CAP_S = 3600.0
"""No time to live is longer than an hour, if nothing else is said."""


@dataclass(frozen=True)
class Scheme:
    """A broker of the experiment: its policy and the bytes of its caches."""

    policy: str
    budget: int
    delay_ms: float = 0.0
    """How long its way to the cluster is made."""
    cap_s: float = CAP_S
    """The longest time to live, in seconds of the trace."""

    @property
    def name(self) -> str:
        """What the broker is called."""
        delay = f"-{self.delay_ms:.0f}ms" if self.delay_ms else ""
        return f"{self.policy}-{self.budget}{delay}" + (f"-{self.cap_s:.0f}s" if self.cap_s != CAP_S else "")


def write_experiment(folder: Path, schemes: Sequence[Scheme], *, factor: float) -> None:
    """An app folder in which time passes `factor` times as fast, with a broker for each scheme."""
    text = resources.files(__package__).joinpath("newsstand.toml").read_text(encoding="utf-8")
    text = unbound(text.partition("# Not in the paper")[0])
    text = re.sub(
        r'^period = "(\d+)s"$',
        lambda found: f"period = {max(SHORTEST_S, float(found[1]) / factor):g}",
        text,
        flags=re.M,
    )
    text += EVERYBODY_AT_ONE_ADDRESS + "".join(_broker(scheme, factor) for scheme in schemes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "newsstand.toml").write_text(text, "utf-8")


def _broker(scheme: Scheme, factor: float) -> str:
    policy = scheme.policy
    settings = {
        "name": f'"{scheme.name}"',
        "results_policy": f'"{policy}"',
        "results_budget": scheme.budget,
        "results_window_ms": round(WINDOW_S * 1000 / factor),
        "results_cap_ms": round(scheme.cap_s * 1000 / factor),
        "results_expiry": '"object"' if policy == "exp" else '"cache"',
        "access_log": "false",
    }
    return "\n[[brokers]]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items())
