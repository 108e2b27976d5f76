"""What a reproduction came to, for people or for programs."""

from __future__ import annotations

import json


def tell(written: dict[str, object], as_json: bool, width: int) -> None:
    """Print the claims with their verdicts, their names in a column of a width."""
    if as_json:
        print(json.dumps(written))
        return
    claims: list[dict[str, object]] = written["claims"]  # type: ignore[assignment]
    for claim in claims:
        print(f"{'holds ' if claim['holds'] else 'FAILS '} {claim['id']:{width}} {claim['measured']}")
    print(f"{sum(bool(claim['holds']) for claim in claims)} of {len(claims)} claims hold; see {written['report']}")
