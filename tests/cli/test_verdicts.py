"""How verdicts are printed, including undecided claims."""

from __future__ import annotations

import json

import pytest

from newsstand.cli.lab.reproduce import print_verdicts
from newsstand.lab.reporting.claims import Claim

CLAIMS = [
    Claim("one", "It is so.", "always", "twice", True),
    Claim("two", "It is not so.", "never", "once", False),
    Claim("three", "Who knows?", "sometimes", "one run", None),
]


def written(claims: list[Claim]) -> dict[str, object]:
    return {"claims": [claim.as_dict() for claim in claims], "report": "out/report.html"}


def test_verdicts_are_one_line_per_claim_and_sum(capsys: pytest.CaptureFixture[str]) -> None:
    print_verdicts(written(CLAIMS), as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "holds  one   twice",
        "FAILS  two   once",
        "unsure three one run",
        "1 of 3 claims hold, 1 are unsure; see out/report.html",
    ]


def test_sum_omits_unsure_claims_if_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    print_verdicts(written(CLAIMS[:2]), as_json=False)
    assert capsys.readouterr().out.splitlines()[-1] == "1 of 2 claims hold; see out/report.html"


def test_json_has_null_for_unsure_claims(capsys: pytest.CaptureFixture[str]) -> None:
    print_verdicts(written(CLAIMS), as_json=True)
    assert [claim["holds"] for claim in json.loads(capsys.readouterr().out)["claims"]] == [True, False, None]
