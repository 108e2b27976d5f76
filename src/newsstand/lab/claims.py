"""A paper's claims and what became of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass


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
