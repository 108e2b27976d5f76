"""The oracle reports each kind of violation in a hand-written journal, and none in a correct one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from faults.findings import Report
from faults.interests import STEADY, of_kind
from faults.journal import Journal, Line
from faults.oracle import judge, judge_witness
from faults.run import judge_folder

KEY = of_kind("kind0").key
IDS = ["a", "b", "c", "d"]
LOG = [{"_seq": n, "id": id, "kind": "kind0", "lat": 0.0, "lon": 0.0} for n, id in enumerate(IDS, 1)]
PUBLISHED: list[Line] = [
    {"op": "publish", "key": id, "sent": 10.0 * n, "got": 10.0 * n + 1, "ids": [id], "status": 200,
     "answer": {"first": n, "last": n, "repeated": False}}
    for n, id in enumerate(IDS, 1)
]  # fmt: skip
AWAY: list[Line] = [
    {"op": "kill", "process": "coordinator", "at": 45.0},
    {"op": "ready", "process": "coordinator", "at": 90.0},
]


def answer(op: str, at: float, broker: str = "b1", status: int | None = 200, **more: Any) -> Line:
    return {"op": op, "sent": at, "got": at + 0.1, "broker": broker, "status": status, "session": 1, **more}


def login() -> Line:
    return answer("login", 0, durability="replicated")


def subscribe(at: float = 1, status: int = 201, durability: str = "replicated", **more: Any) -> Line:
    start = more.pop("position", 0)
    head = more.pop("head", start)
    facts = {"since": "now", "position": start, "head": head, "durability": durability}
    return answer("subscribe", at, status=status, key=KEY, **facts, **more)


def unsubscribe(at: float, durability: str = "replicated", **more: Any) -> Line:
    return answer("unsubscribe", at, status=more.pop("status", 204), key=KEY, durability=durability, **more)


def read(at: float, first: int, ids: str, after: int | None = None, **more: Any) -> Line:
    results = [[position, id] for position, id in enumerate(ids, first)]
    return answer("read", at, key=KEY, after=after, results=results, **more)


def ack(at: float, position: int, durability: str = "replicated", **more: Any) -> Line:
    return answer("ack", at, key=KEY, position=position, answered=position, durability=durability, **more)


def listed(at: float, position: int | None, final: bool = False, **more: Any) -> Line:
    head = more.pop("head", 4)
    return answer("list", at, found={} if position is None else {KEY: [position, head]}, final=final, **more)


def rules(
    lines: Sequence[Line],
    streams: Sequence[str] = IDS,
    published: Sequence[Line] = PUBLISHED,
    log: Any = LOG,
    steady: Sequence[str] = (KEY,),
) -> set[str]:
    report = judge({"s1": lines}, published, AWAY, log, {KEY: list(streams)}, steady)
    return {one.rule for one in report.violations}


GOOD = [login(), subscribe(), read(22, 1, "ab"), ack(23, 1), read(42, 2, "bcd"), ack(43, 4)]


def test_complete_journal_has_no_violation() -> None:
    assert not rules([*GOOD, listed(44, 4), listed(200, 4, final=True)])


def test_unacknowledged_results_may_be_repeated() -> None:
    again = [read(30, 2, "bc", broker="b2"), read(31, 2, "b", broker="b3")]
    assert not rules([*GOOD[:4], *again, read(42, 2, "bcd"), ack(43, 4), listed(200, 4, final=True)])


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (read(30, 3, "cd"), "result lost"),
        (read(30, 4, "d", after=3), "result lost"),
        (read(30, 1, "ab", broker="b2"), "acknowledgement undone"),
        (read(30, 2, "cb"), "order"),
        (read(30, 2, "bb"), "order"),
        (read(30, 0, "d"), "order"),
        (answer("read", 30, key=KEY, after=None, results=[[2, "b"], [4, "d"]]), "order"),
        (listed(30, 0, broker="b2"), "acknowledgement undone"),
        (listed(30, 3), "result lost"),
        (listed(30, None, broker="b2"), "subscription undone"),
        (answer("read", 30, status=404, key=KEY, after=None), "subscription undone"),
        (ack(30, 2, status=404), "subscription undone"),
        (unsubscribe(30, status=404), "subscription undone"),
        (subscribe(30, broker="b2", position=2), "subscription undone"),
        (answer("ack", 30, key=KEY, position=2, answered=1, durability="replicated"), "acknowledgement"),
        (answer("list", 30, found={KEY: [1, 4], "other": [0, 0]}, final=False), "stranger"),
        (answer("list", 30, status=401, found={}, final=False), "session lost"),
        (answer("login", 30, status=401), "account lost"),
        (subscribe(30, status=200, position=3, head=2), "position"),
        (subscribe(30, status=200, position=5), "position"),
        (listed(30, 1, head=5), "position"),
    ],
)
def test_violation_is_reported(line: Line, rule: str) -> None:
    assert rule in rules([*GOOD[:4], line])


@pytest.mark.parametrize(
    "line",
    [
        listed(30, 4, broker="b2"),
        read(30, 1, "", broker="b2"),
        subscribe(30, status=200, broker="b2"),
        {"op": "notified", "at": 30.0, "opened": 25.0, "broker": "b2", "key": KEY, "position": 4},
    ],
)
def test_ended_subscription_that_returns_is_reported(line: Line) -> None:
    line = {**line, "results": [[1, "a"]]} if line["op"] == "read" else line
    assert "end undone" in rules([*GOOD[:4], unsubscribe(24), line])


def test_connection_opened_before_end_may_notify() -> None:
    reply = {"op": "notified", "at": 30.0, "opened": 20.0, "broker": "b1", "key": KEY, "position": 4}
    assert not rules([*GOOD[:4], unsubscribe(24), reply, listed(200, None, final=True)])


def test_unreplicated_change_is_visible_elsewhere_at_end() -> None:
    ended = [*GOOD[:4], unsubscribe(24, durability="broker")]
    other = listed(30, 1, broker="b2")
    assert not rules([*ended, other, listed(200, None, final=True)])
    assert "end undone" in rules([*ended, listed(30, 1), listed(200, None, final=True)])
    assert "end undone" in rules([*ended, other, listed(200, 4, final=True)])


def test_other_broker_is_not_checked_without_coordinator() -> None:
    stale = [read(50, 1, "ab", broker="b2"), listed(51, 0, broker="b2")]
    assert not rules([*GOOD, *stale, listed(200, 4, final=True)])
    assert "acknowledgement undone" in rules([*GOOD, listed(51, 0), listed(200, 4, final=True)])


def test_final_list_has_all_changes_and_results() -> None:
    assert "result lost" in rules([*GOOD[:4], listed(200, 1, final=True)])
    assert "acknowledgement undone" in rules([*GOOD, listed(200, 3, final=True)])
    assert "subscription undone" in rules([*GOOD, listed(200, None, final=True)])
    assert "end" in rules(GOOD)


def test_gap_after_requested_position_is_reported() -> None:
    assert rules([*GOOD, read(44, 4, "d", after=2), listed(200, 4, final=True)]) == {"result lost"}


def test_final_list_of_another_broker_has_unreplicated_changes() -> None:
    here = {"durability": "broker"}
    made = [login(), subscribe(**here), read(22, 1, "abcd")]
    assert not rules([*made, ack(43, 3, **here), listed(200, 3, final=True, broker="b2")])
    assert rules([*made, listed(200, None, final=True, broker="b2")]) == {"subscription undone"}
    ended = [*made, unsubscribe(43, **here)]
    assert rules([*ended, listed(200, 0, final=True, broker="b2")]) == {"end undone"}


@pytest.mark.parametrize("position", [2, 4])
def test_final_position_other_than_acknowledged_one_is_reported(position: int) -> None:
    here = {"durability": "broker"}
    done = [login(), subscribe(**here), read(22, 1, "abcd"), ack(43, 3, **here)]
    assert rules([*done, listed(200, position, final=True, broker="b2")]) == {"acknowledgement undone"}


def test_result_published_after_subscription_and_missing_is_reported() -> None:
    def found(since: float) -> set[str]:
        read_all = [login(), subscribe(since), read(42, 1, "abd"), ack(43, 3)]
        return rules([*read_all, listed(200, 3, final=True, head=3)], streams=["a", "b", "d"], steady=())

    assert found(since=29) == {"result lost"}
    assert not found(since=31)


def test_result_missing_in_stream_is_reported() -> None:
    found = rules([login(), subscribe(), read(42, 1, "abd"), listed(200, 3, final=True)], streams=["a", "b", "d"])
    assert {"stream", "result lost"} <= found


def test_ended_session_that_is_accepted_is_reported() -> None:
    ended = answer("logout", 5, status=204, durability="replicated")
    assert "session undone" in rules([login(), ended, answer("probe", 6, broker="b2")])
    assert "session undone" not in rules([login(), ended, answer("probe", 6, broker="b2", status=401)])


def test_repeated_or_missing_publication_is_reported() -> None:
    twice = [*LOG, {**LOG[0], "_seq": 5}]
    assert "published twice" in rules([], log=twice)
    assert "publication lost" in rules([], log=LOG[:3])
    assert "log" in rules([], published=PUBLISHED[:3])
    assert "log" in rules([], log=[*LOG[:3], {**LOG[3], "_seq": 5}])
    assert "stream" in rules([], streams=["a", "a", "b", "c", "d"])


@pytest.mark.parametrize("stream", [["x", "a"], ["a", "a"], ["b", "a"]])
def test_stream_that_is_not_steady_has_matches_in_order(stream: list[str]) -> None:
    assert "stream" in rules([], streams=stream, steady=())
    assert "stream" not in rules([], streams=["a", "c"], steady=())


def test_lost_answer_allows_both_states_until_next_one() -> None:
    lost = unsubscribe(24, status=None)
    assert not rules(
        [*GOOD[:4], lost, listed(30, None, broker="b2"), unsubscribe(31, status=404), listed(99, None, final=True)]
    )
    assert not rules([*GOOD[:4], lost, listed(30, 1, broker="b2"), unsubscribe(31), listed(99, None, final=True)])


@pytest.mark.parametrize(
    ("position", "regressions", "count"), [(4, [], 0), (3, [], 1), (5, [], 1), (4, ["s1: 2 after 3"], 1)]
)
def test_witness_is_notified_up_to_last_result_and_never_back(
    position: int, regressions: list[str], count: int
) -> None:
    report = Report()
    judge_witness(report, {"positions": {KEY: position}, "regressions": regressions}, {KEY: IDS})
    assert [one.rule for one in report.violations] == ["notification"] * count


def test_folder_of_run_is_judged_with_all_its_journals(tmp_path: Path) -> None:
    def write(name: str, lines: Sequence[Line]) -> None:
        journal = Journal(tmp_path / f"{name}.jsonl")
        for line in lines:
            journal.write(**line)
        journal.close()

    def found(position: int) -> list[str]:
        witness = {"positions": {KEY: position}, "regressions": []}
        (tmp_path / "witness.json").write_text(json.dumps(witness))
        return [one.rule for one in judge_folder(tmp_path).violations]

    streams = {one.key: IDS if one.key == KEY else [] for one in STEADY}
    (tmp_path / "streams.json").write_text(json.dumps(streams))
    (tmp_path / "log.json").write_text(json.dumps(LOG))
    write("published", PUBLISHED)
    write("faults", AWAY)
    write("s00", [*GOOD, listed(200, 4, final=True)])
    assert not found(4)
    assert found(3) == ["notification"]
    write("s01", [*GOOD, listed(200, 3, final=True)])
    assert set(found(4)) == {"acknowledgement undone"}
