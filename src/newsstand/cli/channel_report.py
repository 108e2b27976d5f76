"""What a dry run and an explanation of a channel say to people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from newsstand.cluster.facade import Facts
    from newsstand.model import Channel

MOST_SETS = 50
"""Sets of values that are listed; all are counted."""


def show_trial(facts: Facts, channel: Channel) -> None:
    """How many results each set of values gets, and the first of them."""
    names = [one.name for one in channel.parameters]
    sets = cast("Sequence[Mapping[str, Sequence[object]]]", facts["by_values"])
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    table.add_column("results", justify="right")
    for one in sets[:MOST_SETS]:
        table.add_row(*(str(value) for value in one["values"]), f"{one['results']:,}")
    console = Console(highlight=False, markup=False)
    console.print(table)
    if len(sets) > MOST_SETS:
        console.print(f"… and {len(sets) - MOST_SETS:,} more sets of values")
    sample = cast("Sequence[Mapping[str, object]]", facts["sample"])
    if sample:
        console.print(f"\nThe first of them ({', '.join(cast('Mapping[str, str]', facts['output']))}):")
    for result in sample:
        values = ", ".join(str(value) for value in cast("Sequence[object]", result["values"]))
        origin = "" if result["publication"] is None else f" from {result['publication']}"
        payload = json.dumps(result["payload"], ensure_ascii=False)
        console.print(f"{values}{origin}: {payload}" if values or origin else payload, soft_wrap=True)
    console.print(
        f"\n{channel.name}: {facts['results']:,} results of {facts['publications']:,} publications "
        f"in {facts['seconds']:.2f} s",
        soft_wrap=True,
    )


def show_explanation(facts: Facts) -> None:
    """What a channel costs: warnings first."""
    console = Console(highlight=False, markup=False)
    plan = cast("Mapping[str, Sequence[Mapping[str, object]]]", facts["plan"])
    for warning in plan["warnings"]:
        console.print(f"WARNING: {warning}", soft_wrap=True)
    shared = ", ".join(cast("Sequence[str]", facts["runs_with"])) or "no other channel"
    console.print(
        f"{facts['channel']}: {facts['subscriptions']:,} subscriptions share {facts['streams']:,} streams"
    )
    console.print(f"reads new publications together with: {shared}", soft_wrap=True)
    for join in plan["joins"]:
        keys = ", ".join(_key(name) for name in cast("Sequence[str]", join["keys"])) or "no key"
        console.print(f"join by {keys}{' with the subscriptions' if join['values'] else ''} ({join['kind']})")
    recent = cast("Mapping[str, float]", facts["recent"])
    if "error" in recent:
        console.print(
            f"fails on the last {recent['publications']:,} publications: {recent['error']}", soft_wrap=True
        )
        return
    console.print(
        f"of the last {recent['publications']:,} publications: {recent['results']:,} results "
        f"in {recent['streams']:,} streams, computed in {recent['seconds']:.2f} s",
        soft_wrap=True,
    )
    if facts.get("last_seconds"):
        console.print(f"the last execution took {facts['last_seconds']:.2f} s")


def _key(name: str) -> str:
    """A key of a join; those that stand for a distance have names that nobody chose."""
    return "place" if name.startswith("__") else name
