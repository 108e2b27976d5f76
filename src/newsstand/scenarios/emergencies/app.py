"""The app of the scenario, written into a folder: time passes faster than in the paper, and there are brokers."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from newsstand.scenarios.emergencies.city import City

NAMES = ("north", "south", "east", "west")
"""Where brokers stand, and what they are called."""

EVERYBODY_AT_ONE_ADDRESS = "\n[limits]\nregistrations_per_hour = 1000000\n"
"""All people of the scenario register from this machine."""


def write_app(folder: Path, *, speed: float, brokers: int, budget: int) -> None:
    """An app folder whose channels have periods `speed` times as short, and some brokers with a small cache."""
    text = resources.files(__package__).joinpath("newsstand.toml").read_text(encoding="utf-8")
    text = re.sub(r'^period = "(\d+)s"$', lambda found: f"period = {float(found[1]) / speed:g}", text, flags=re.M)
    text = unbound(text)
    folder.mkdir(parents=True, exist_ok=True)
    # One machine is all of them: a broker that waits for its turn there is not dead.
    text += '\n[coordinator]\npolicy = "miles"\nlease_s = 15\n' + EVERYBODY_AT_ONE_ADDRESS
    (folder / "newsstand.toml").write_text(text + "".join(_broker(n, budget) for n in range(brokers)), "utf-8")


def unbound(text: str) -> str:
    """The scenario without its binding rules: in the workload of the paper people follow one another."""
    return re.sub(r"^bind = .*\n", "", text, flags=re.M)


def _broker(number: int, budget: int) -> str:
    edges = City.bounds()
    name = NAMES[number] if number < len(NAMES) else f"edge{number + 1}"
    middle = {
        "lat": (edges["north"] + edges["south"]) / 2,
        "lon": (edges["east"] + edges["west"]) / 2,
    }
    if name in edges:
        side = "lat" if name in ("north", "south") else "lon"
        middle[side] = (middle[side] + edges[name]) / 2
    place = f"lat = {middle['lat']:.4f}\nlon = {middle['lon']:.4f}"
    return f'\n[[brokers]]\nname = "{name}"\nresults_budget = {budget}\n{place}\n'
