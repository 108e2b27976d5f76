"""What `newsstand push-cache` answers: for programs, and as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from newsstand.lab.push_cache_runs import Comparison

LOADS = ("traffic", "primary_traffic", "primary_requests", "server_traffic")
CLIENTS = ("client_hits", "client_stale_hits", "client_bytes")
WIDEST = 1000


def answer_of(answer: Comparison) -> dict[str, object]:
    """The answer as JSON has it."""
    outcome = answer.outcome
    return {
        **asdict(answer.setting),
        **asdict(outcome),
        **{name: getattr(outcome, name) for name in LOADS},
        "without": {name: getattr(answer.without, name) for name in (*LOADS, *CLIENTS)},
        "uncached": {name: getattr(answer.uncached, name) for name in LOADS},
        "saved": {name: saved(answer, name) for name in LOADS},
    }


def saved(answer: Comparison, name: str) -> float:
    """The share of something that pushing saves; below 0 if it costs."""
    with_pushing, without = (float(getattr(one, name)) for one in (answer.outcome, answer.without))
    return 1 - with_pushing / without if without else 0.0


def show(answers: Sequence[Comparison], varied: Sequence[str]) -> None:
    """Print answers for people: what they have in common, then a row for each."""
    in_common = (name for name in asdict(answers[0].setting) if name not in varied)
    print(", ".join(f"{name.replace('_', ' ')} {_text(answers[0], name)}" for name in in_common))
    table = Table(box=None, pad_edge=False)
    for name in varied:
        table.add_column(name.replace("_", " "), justify="right")
    rows = [_cells(answer) for answer in answers]
    for name in rows[0]:
        table.add_column(name, justify="right")
    for answer, row in zip(answers, rows, strict=True):
        table.add_row(*(_text(answer, name) for name in varied), *row.values())
    whole = Console(width=WIDEST).measure(table).maximum
    Console(highlight=False, width=whole).print(table)
    print("traffic is bytes times hops; primary is what servers send themselves; both compared with no pushing")


def _text(answer: Comparison, name: str) -> str:
    value = getattr(answer.setting, name)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cells(answer: Comparison) -> dict[str, str]:
    outcome = answer.outcome
    pushed = outcome.hits + outcome.checks
    return {
        "traffic": f"{outcome.traffic:.4g}",
        "saved": f"{saved(answer, 'traffic'):.1%}",
        "primary": f"{outcome.primary_traffic:.4g}",
        "primary saved": f"{saved(answer, 'primary_traffic'):.1%}",
        "from push-caches": f"{pushed / outcome.requests:.1%}",
        "stale": f"{outcome.stale_hits / outcome.requests:.2%}",
        "redirects": f"{outcome.redirects:,}",
        "invalid": f"{outcome.invalid:,}",
        "pushes": f"{outcome.pushes:,}",
        "active": f"{outcome.active} of {outcome.available}",
        "stored bytes": f"{outcome.stored_bytes:,}",
    }
