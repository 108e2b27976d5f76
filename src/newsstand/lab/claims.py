"""A paper's claims and what became of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

Measured = TypeVar("Measured")


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, in our words, with the verdict of a measurement."""

    id: str
    text: str
    paper: str
    measured: str
    holds: bool | None
    """Whether it holds; None if what was measured cannot tell."""

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def judged(
    judges: Sequence[Callable[[Measured], list[Claim]]], measured: Measured, why: Mapping[str, str]
) -> list[Claim]:
    """What all judges say, in their order; `why` explains claims, by their ids, that do not hold."""
    told = [claim for judge in judges for claim in judge(measured)]
    return [_explained(claim, why.get(claim.id)) if claim.holds is False else claim for claim in told]


def _explained(claim: Claim, reason: str | None) -> Claim:
    return replace(claim, measured=f"{claim.measured}. {reason}") if reason else claim
