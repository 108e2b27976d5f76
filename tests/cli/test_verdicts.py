"""How verdicts are printed, also those that what was run cannot give."""

from __future__ import annotations

import json

import pytest

from newsstand.cli.verdicts import tell
from newsstand.lab.claims import Claim

CLAIMS = [
    Claim("one", "It is so.", "always", "twice", True),
    Claim("two", "It is not so.", "never", "once", False),
    Claim("three", "Who knows?", "sometimes", "one run", None),
]


def written(claims: list[Claim]) -> dict[str, object]:
    return {"claims": [claim.as_dict() for claim in claims], "report": "out/report.html"}


def test_people_get_one_line_a_claim_and_a_sum(capsys: pytest.CaptureFixture[str]) -> None:
    tell(written(CLAIMS), as_json=False, width=6)
    assert capsys.readouterr().out.splitlines() == [
        "holds  one    twice",
        "FAILS  two    once",
        "unsure three  one run",
        "1 of 3 claims hold, 1 are unsure; see out/report.html",
    ]


def test_nothing_is_said_about_the_unsure_where_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    tell(written(CLAIMS[:2]), as_json=False, width=6)
    assert capsys.readouterr().out.splitlines()[-1] == "1 of 2 claims hold; see out/report.html"


def test_programs_get_null_for_the_unsure(capsys: pytest.CaptureFixture[str]) -> None:
    tell(written(CLAIMS), as_json=True, width=6)
    assert [claim["holds"] for claim in json.loads(capsys.readouterr().out)["claims"]] == [True, False, None]
