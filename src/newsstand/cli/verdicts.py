"""What a reproduction came to, for people or for programs."""

from __future__ import annotations

import json

VERDICTS = {True: "holds", False: "FAILS", None: "unsure"}


def tell(written: dict[str, object], as_json: bool, width: int) -> None:
    """Print the claims with their verdicts, their names in a column of a width."""
    if as_json:
        print(json.dumps(written))
        return
    claims: list[dict[str, object]] = written["claims"]  # type: ignore[assignment]
    verdicts = [VERDICTS[claim["holds"]] for claim in claims]  # type: ignore[index]
    for claim, verdict in zip(claims, verdicts, strict=True):
        print(f"{verdict:6} {claim['id']:{width}} {claim['measured']}")
    unsure = f", {verdicts.count('unsure')} are unsure" if "unsure" in verdicts else ""
    print(f"{verdicts.count('holds')} of {len(claims)} claims hold{unsure}; see {written['report']}")
