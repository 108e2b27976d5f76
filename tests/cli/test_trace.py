"""`newsstand trace`: what it prints of each state of a publication, over a stand-in of the cluster."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster.standin import StandIn, serving

from newsstand.auth.api_tokens import admin_token
from newsstand.cli.main import run
from newsstand.cluster.ingest.publications import PublicationAudit

BEGIN = 1_700_000_000_000
DELIVERED = {
    "stream": 3,
    "position": 1,
    "notified": BEGIN + 20,
    "pulled": BEGIN + 21,
    "signalled": BEGIN + 22,
    "connections": 1,
    "read": BEGIN + 1234,
    "acknowledged": BEGIN + 1300,
    "last_acknowledged": BEGIN + 1400,
    "subscribers": 2,
}
PENDING = DELIVERED | {
    "stream": 4,
    "pulled": BEGIN + 30,
    "signalled": BEGIN + 31,
    "connections": 4,
    "read": None,
    "acknowledged": None,
    "last_acknowledged": None,
    "subscribers": 0,
}
FACTS: dict[str, Any] = {
    "publication": 7,
    "accepted_at_ms": BEGIN + 1,
    "page": None,
    "stages": {"received": BEGIN, "durable": BEGIN + 2},
    "channels": [
        {
            "channel": "by_kind",
            "state": "evaluated",
            "execution": 5,
            "at_ms": BEGIN + 10,
            "results_of_execution": 9,
            "reached": 2,
            "streams": [],
            "stages": {"queued": BEGIN + 3, "planned": BEGIN + 4, "executed": BEGIN + 9, "stored": BEGIN + 10},
            "brokers": [
                {
                    "broker": "edge",
                    "attempts": 0,
                    "answered_at_ms": BEGIN + 25,
                    "deliveries": [DELIVERED, PENDING],
                    "unknown": 0,
                    "error": None,
                }
            ],
        }
    ],
}
Printed = Callable[[dict[str, Any]], list[str]]


@pytest.fixture
def printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Printed]:
    """The lines that the command prints of what the cluster answers."""
    monkeypatch.delenv("NEWSSTAND_TOKEN", raising=False)
    cluster = StandIn(tmp_path)
    token, _ = admin_token(cluster.app.data, bytes(32))

    def lines(facts: dict[str, Any], *options: str) -> list[str]:
        monkeypatch.setattr(StandIn, "audit", lambda self, dataset, seq: PublicationAudit(facts))
        status = run(["trace", str(tmp_path), "reports", "7", *options])
        printed = capsys.readouterr()
        if status:
            return [str(status), *printed.err.splitlines()]
        return printed.out.splitlines()

    with serving(cluster, {"admin": token}) as url:
        (cluster.app.data / "address").write_text(url + "\n")
        yield lines


def test_stages_are_printed_in_milliseconds_since_request(printed: Printed) -> None:
    assert printed(FACTS) == [
        "reports 7: received 2023-11-14 22:13:20.000 UTC",
        "channel by_kind: execution 5, streams reached: 2",
        "stage         at       first ms  last ms",
        "received      cluster         0        0",
        "durable       cluster         2        2",
        "queued        cluster         3        3",
        "planned       cluster         4        4",
        "executed      cluster         9        9",
        "stored        cluster        10       10",
        "notified      edge           20       20",
        "pulled        edge           21       30",
        "signalled     edge           22       31  5 connections",
        "read          edge        1,234    1,234",
        "acknowledged  edge        1,300    1,400  2 subscribers",
    ]
    assert [json.loads(line) for line in printed(FACTS, "--json")] == [FACTS]  # type: ignore[call-arg]


def test_times_that_are_unknown_are_called_so(printed: Printed) -> None:
    facts = copy.deepcopy(FACTS)
    facts["stages"] = {"received": None, "durable": None}
    (channel,) = facts["channels"]
    channel["stages"] |= {"queued": None, "planned": None, "executed": None}
    (broker,) = channel["brokers"]
    broker |= {"deliveries": [], "unknown": 2}
    assert printed(facts) == [
        "reports 7: accepted (when it was received is unknown) 2023-11-14 22:13:20.001 UTC",
        "channel by_kind: execution 5, streams reached: 2",
        "stage         at       first ms  last ms",
        "received      cluster   unknown  unknown",
        "durable       cluster   unknown  unknown",
        "queued        cluster   unknown  unknown",
        "planned       cluster   unknown  unknown",
        "executed      cluster   unknown  unknown",
        "stored        cluster         9        9",
        "notified      edge      unknown  unknown",
        "pulled        edge      unknown  unknown",
        "signalled     edge      unknown  unknown",
        "read          edge      unknown  unknown",
        "acknowledged  edge      unknown  unknown",
        "broker edge has no record of 2 results",
    ]


def test_broker_without_report_is_named_below_table(printed: Printed) -> None:
    facts = copy.deepcopy(FACTS)
    facts["channels"][0]["brokers"][0] |= {"deliveries": [], "unknown": 2, "error": "does not answer: why"}
    assert printed(facts)[-1] == "broker edge does not answer: why"


def test_broker_that_got_nothing_of_publication_has_no_rows(printed: Printed) -> None:
    facts = copy.deepcopy(FACTS)
    facts["channels"][0]["brokers"][0] |= {"deliveries": [], "unknown": 0, "error": None}
    assert printed(facts)[-1].split() == ["stored", "cluster", "10", "10"]


@pytest.mark.parametrize(("signalled", "pulled"), [([22, 31], "none"), ([22, None], "not yet")])
def test_broker_without_result_cache_pulls_nothing(
    printed: Printed, signalled: list[int | None], pulled: str
) -> None:
    facts = copy.deepcopy(FACTS)
    deliveries = facts["channels"][0]["brokers"][0]["deliveries"]
    for one, at in zip(deliveries, signalled, strict=True):
        one |= {"pulled": None, "signalled": at and BEGIN + at}
    (row,) = [line for line in printed(facts) if line.startswith("pulled")]
    assert row.split() == ["pulled", "edge", *pulled.split() * 2]


def test_cluster_of_earlier_version_is_called_so(printed: Printed) -> None:
    facts = {name: value for name, value in FACTS.items() if name != "stages"}
    assert printed(facts) == [
        "2",
        "newsstand: reports 7: the cluster is of an earlier version and reports no stages; "
        "restart it with this version, or use --json",
    ]


def test_clock_of_broker_that_is_behind_gives_no_negative_time(printed: Printed) -> None:
    facts = copy.deepcopy(FACTS)
    facts["channels"][0]["brokers"][0]["deliveries"][0]["notified"] = BEGIN - 5000
    assert printed(facts)[9] == "notified      edge            0       20"


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ({"state": "waiting", "behind": 3}, "waiting, 3 before it"),
        ({"state": "failing", "error": "no number", "since_ms": 1}, "failing, no number"),
        ({"state": "published before the channel began"}, "published before the channel began"),
    ],
)
def test_states_without_execution_take_one_line(printed: Printed, state: dict[str, Any], line: str) -> None:
    assert printed(FACTS | {"channels": [{"channel": "by_kind", **state}]})[1:] == [f"channel by_kind: {line}"]


def test_lost_publication_is_called_so(printed: Printed) -> None:
    lost = {
        "publication": 7,
        "lost": {"first": 6, "last": 9, "at_ms": BEGIN, "why": "bad checksum"},
        "channels": [FACTS["channels"][0], {"channel": "other", "state": "lost"}],
    }
    assert printed(lost) == [
        "reports 7: lost from the log: bad checksum",
        "channel by_kind: evaluated",
        "channel other: lost",
    ]
