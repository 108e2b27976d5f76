"""The oracle: it compares the journals of a run with the guarantees of the platform."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from faults.account import Account
from faults.findings import Report, World
from faults.interests import matches
from faults.journal import Line

GRACE_S = 6.0
"""How long a broker may consider the coordinator away after its return: a waiting heartbeat and the next one."""
WITNESS = "witness"
"""The name of a broker that observes streams from their beginning."""


def judge(
    journals: Mapping[str, Sequence[Line]],
    published: Sequence[Line],
    faults: Sequence[Line],
    log: Sequence[Line],
    streams: Mapping[str, Sequence[str]],
    steady: Iterable[str] = (),
) -> Report:
    """Check the answers to clients; `steady` streams have all matching publications."""
    report = Report()
    _check_publications(published, log, report)
    _check_streams(log, streams, set(steady), report)
    sent_at: dict[str, float] = {}
    answered_at: dict[str, float] = {}
    for line in sorted(published, key=lambda one: float(one["sent"])):
        for id in line["ids"]:
            sent_at.setdefault(id, line["sent"])
            if line["status"] == 200:
                answered_at.setdefault(id, line["got"])
    world = World(_away(faults), log, streams, sent_at, answered_at)
    for who, lines in journals.items():
        Account(who, world, report).judge(lines)
    return report


def judge_witness(report: Report, witness: Line, streams: Mapping[str, Sequence[str]]) -> None:
    """Check that the notifications of the witness reached the end of its streams, and never went back."""
    for key, position in witness["positions"].items():
        if position != len(streams[key]):
            what = f"{key}: {position} of {len(streams[key])} results were announced"
            report.wrong("notification", WITNESS, what, {})
    for moved in witness["regressions"]:
        report.wrong("notification", WITNESS, f"went back: {moved}", {})


def _check_publications(published: Sequence[Line], log: Sequence[Line], report: Report) -> None:
    ids = [str(record["id"]) for record in log]
    for id, count in Counter(ids).items():
        if count > 1:
            report.wrong("published twice", "log", id, {})
    if [record["_seq"] for record in log] != list(range(1, len(log) + 1)):
        report.wrong("log", "log", "its numbers are not consecutive", {})
    for line in published:
        if line["status"] != 200:
            continue
        report.figures["repetitions answered"] += bool(line["answer"]["repeated"])
        if ids[line["answer"]["first"] - 1 : line["answer"]["last"]] != line["ids"]:
            report.wrong("publication lost", line["key"], "is not at the numbers of the answer", line)
    report.figures["publications"] = len(ids)
    stray = set(ids) - {id for line in published for id in line["ids"]}
    if stray:
        report.wrong("log", "log", f"{len(stray)} records were never published", {})


def _check_streams(
    log: Sequence[Line], streams: Mapping[str, Sequence[str]], steady: set[str], report: Report
) -> None:
    for key, ids in streams.items():
        wanted = [str(record["id"]) for record in log if matches(key, record)]
        if key in steady:
            if list(ids) != wanted:
                report.wrong("stream", key, f"has {len(ids)} results; {len(wanted)} publications match", {})
            continue
        order = {id: place for place, id in enumerate(wanted)}
        places = [order.get(id, -1) for id in ids]
        if -1 in places or any(one >= two for one, two in pairwise(places)):
            report.wrong("stream", key, "has results that do not match, are repeated or are out of order", {})


def _away(faults: Sequence[Line]) -> list[tuple[float, float]]:
    spans: list[tuple[float, float]] = []
    begun: float | None = None
    for line in faults:
        if line["process"] != "coordinator":
            continue
        if line["op"] in ("kill", "pause") and begun is None:
            begun = line["at"]
        elif line["op"] == "ready" and begun is not None:
            spans.append((begun, line["at"] + GRACE_S))
            begun = None
    return spans if begun is None else [*spans, (begun, float("inf"))]
