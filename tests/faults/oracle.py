"""Recomputes from journals what had to happen, and says where it did not.

It knows nothing of the platform but what it promises:

- What is answered with `Newsstand-Durability: replicated` holds at every broker from then on. What a broker alone
  has holds there from then on, and everywhere in the end.
- While the coordinator is away a broker cannot know what happened at others: what it says of a subscriber that was
  elsewhere in between binds nobody.
- In the end, when everything runs, all that was answered holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from faults.interests import matches
from faults.journal import Line

GRACE_S = 6.0
"""How long after the coordinator is back a broker may take it for away: one heartbeat that waits, and the next."""


@dataclass(frozen=True)
class Violation:
    """A promise that was broken."""

    rule: str
    who: str
    what: str
    line: Line

    def __str__(self) -> str:
        return f"{self.rule}: {self.who}: {self.what}: {self.line}"


@dataclass
class Report:
    """What the oracle found."""

    violations: list[Violation] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    """The longest from the answer to a publication to its receipt by a subscriber that waited for it."""

    def wrong(self, rule: str, who: str, what: str, line: Line) -> None:
        self.violations.append(Violation(rule, who, what, line))


@dataclass(frozen=True)
class World:
    """What all subscribers share: when processes were away, and what was published."""

    away: Sequence[tuple[float, float]]
    """When the coordinator was, or could be taken for, away."""
    log: Sequence[Line]
    streams: Mapping[str, Sequence[str]]
    """The ids of each stream's results, read from the cluster in the end."""
    sent_at: Mapping[str, float] = field(default_factory=dict)
    answered_at: Mapping[str, float] = field(default_factory=dict)
    """When publications were sent for the first time, and answered for the first time."""

    def asks_coordinator(self, line: Line) -> bool:
        """Whether the broker of an answer had the coordinator's at that time."""
        if line.get("durability") == "replicated":
            return True
        return not any(start <= line["got"] and line["sent"] <= end for start, end in self.away)


def judge(
    journals: Mapping[str, Sequence[Line]],
    published: Sequence[Line],
    faults: Sequence[Line],
    log: Sequence[Line],
    streams: Mapping[str, Sequence[str]],
    steady: Iterable[str] = (),
) -> Report:
    """Compare what clients were answered with what had to be; `steady` streams hold all that matches."""
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
        _Account(who, world, report).judge(lines)
    return report


def _check_publications(published: Sequence[Line], log: Sequence[Line], report: Report) -> None:
    ids = [str(record["id"]) for record in log]
    for id, count in Counter(ids).items():
        if count > 1:
            report.wrong("published twice", "log", id, {})
    if [record["_seq"] for record in log] != list(range(1, len(log) + 1)):
        report.wrong("log", "log", "its numbers have holes", {})
    for line in published:
        if line["status"] != 200:
            continue
        report.figures["repetitions answered"] += bool(line["told"]["repeated"])
        if ids[line["told"]["first"] - 1 : line["told"]["last"]] != line["ids"]:
            report.wrong("publication lost", line["key"], "is not where the answer says", line)
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
                report.wrong("stream", key, f"holds {len(ids)} results, not the {len(wanted)} that match", {})
            continue
        order = {id: place for place, id in enumerate(wanted)}
        places = [order.get(id, -1) for id in ids]
        if -1 in places or any(one >= two for one, two in pairwise(places)):
            report.wrong("stream", key, "holds what does not match, or twice, or in another order", {})


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


@dataclass
class _Fact:
    """What was answered last of a subscription or session: whether there is one. None: nobody knows."""

    exists: bool | None
    broker: str = ""
    is_replicated: bool = False
    answered: float = 0.0


@dataclass
class _Subscription:
    """One subscription, from its answer to its end."""

    fact: _Fact
    start: int = 0
    since: float = 0.0
    """When it was answered."""
    received: int = 0
    acknowledged: list[tuple[int, _Fact]] = field(default_factory=list)
    offered: int = 0
    """The highest position of which an acknowledgement was sent."""


class _Account:
    """Follows one subscriber through its journal."""

    def __init__(self, who: str, world: World, report: Report) -> None:
        self._who = who
        self._world = world
        self._report = report
        self._held: dict[str, _Subscription] = {}
        self._doubtful: set[str] = set()
        """Changed at a broker that could not know what happened elsewhere: only contents are checked."""
        self._sessions: dict[int, _Fact] = {}
        self._verified = ""
        """The broker that answered last while the coordinator did, too."""

    def judge(self, lines: Sequence[Line]) -> None:
        final = None
        for line in lines:
            match line["op"]:
                case "register" | "login" | "logout" | "probe":
                    self._session(line)
                case "subscribe":
                    self._subscribe(line)
                case "unsubscribe":
                    self._unsubscribe(line)
                case "ack":
                    self._ack(line)
                case "read":
                    self._read(line)
                case "list":
                    self._list(line)
                    final = line if line["final"] else None
                case "told":
                    self._told(line)
            if line["op"] not in ("login", "logout", "probe", "register", "told", "choose", "open", "closed"):
                self._token(line)
            if line.get("status") is not None and line["status"] < 500 and self._world.asks_coordinator(line):
                self._verified = line["broker"]
        self._end(final)

    # What binds whom.

    def _binds(self, fact: _Fact, line: Line) -> bool:
        """Whether the broker of an answer has to know a fact."""
        if fact.exists is None:
            return False
        return line["broker"] == fact.broker or (fact.is_replicated and self._world.asks_coordinator(line))

    def _fact(self, exists: bool, line: Line) -> _Fact:
        return _Fact(exists, line["broker"], line.get("durability") == "replicated", line["got"])

    def _changed(self, line: Line) -> None:
        """Note whether a subscription was changed by a broker that may not know its state."""
        asks = self._world.asks_coordinator(line)
        self._report.figures["changes without the coordinator"] += not asks
        if line["broker"] != self._verified and not asks:
            self._doubtful.add(line["key"])
        elif line["durability"] == "replicated":
            self._doubtful.discard(line["key"])

    def _wrong(self, rule: str, what: str, line: Line) -> None:
        self._report.wrong(rule, self._who, what, line)

    # Sessions.

    def _session(self, line: Line) -> None:
        status, number = line["status"], line.get("session")
        if line["op"] == "login" and status == 200:
            self._sessions[number] = self._fact(True, line)
            self._report.figures["sessions"] += 1
        elif line["op"] == "login" and status == 401:
            self._wrong("account lost", "a login is refused", line)
        elif line["op"] == "logout":
            self._sessions[number] = self._fact(False, line) if status == 204 else _Fact(None)
        elif line["op"] == "probe" and status == 200 and self._binds(self._sessions[number], line):
            self._wrong("session undone", f"session {number} has ended and is accepted", line)

    def _token(self, line: Line) -> None:
        fact = self._sessions.get(line["session"]) if line.get("status") == 401 else None
        if fact is not None and fact.exists and self._binds(fact, line):
            self._wrong("session lost", "its token is refused", line)

    # Subscriptions.

    def _subscribe(self, line: Line) -> None:
        key, status = line["key"], line["status"]
        held = self._held.setdefault(key, _Subscription(_Fact(False)))
        if status not in (200, 201):
            if not held.fact.exists:
                held.fact = _Fact(None)
            return
        self._report.figures["subscriptions"] += 1
        binding = held.fact.broker != "" and self._binds(held.fact, line) and key not in self._doubtful
        if status == 201 and held.fact.exists and binding:
            self._wrong("subscription undone", "there was one, and it is new", line)
        if status == 200 and held.fact.exists is False and binding:
            self._wrong("end undone", "the subscription had ended, and is there", line)
        self._changed(line)
        if line["position"] > line["head"] or line["head"] > len(self._world.streams[key]):
            self._wrong("position", "it begins beyond the head, or the head is beyond the stream", line)
        start = line["position"]
        self._held[key] = _Subscription(self._fact(True, line), start, line["got"], start, [], start)

    def _unsubscribe(self, line: Line) -> None:
        key, status = line["key"], line["status"]
        held = self._held[key]
        if status not in (204, 404):
            held.fact = _Fact(None)
            return
        if status == 404 and held.fact.exists and self._binds(held.fact, line) and key not in self._doubtful:
            self._wrong("subscription undone", "there is none to end", line)
        self._changed(line)
        self._report.figures["ends"] += 1
        held.fact = self._fact(False, line)

    def _ack(self, line: Line) -> None:
        held = self._held[line["key"]]
        held.offered = max(held.offered, line["position"])
        if line["status"] == 200:
            self._report.figures["acknowledgements"] += 1
            if line["answered"] < line["position"]:
                self._wrong("acknowledgement", "the answer is a lower position", line)
            held.acknowledged.append((line["position"], self._fact(True, line)))
        self._presence(line["key"], line["status"], line)

    def _presence(self, key: str, status: int | None, line: Line) -> None:
        """Check that a subscription answers if there is one, and is 404 if there is none."""
        held = self._held[key]
        if key in self._doubtful or not self._binds(held.fact, line):
            return
        if status == 404 and held.fact.exists:
            self._wrong("subscription undone", "it is not there", line)
        if status in (200, 422) and not held.fact.exists:
            self._wrong("end undone", "the subscription is there", line)

    def _position(self, key: str, position: int, line: Line) -> None:
        """Check an acknowledged position: not below what was acknowledged, not above what was offered."""
        held = self._held[key]
        if key in self._doubtful or not held.fact.exists or not self._binds(held.fact, line):
            return
        least = max([held.start, *(at for at, fact in held.acknowledged if self._binds(fact, line))])
        if position < least:
            self._wrong("acknowledgement undone", f"{position} of {key} is below {least}", line)
        if position > held.offered:
            self._wrong("result lost", f"{position} of {key} was never acknowledged", line)

    def _read(self, line: Line) -> None:
        key = line["key"]
        held = self._held[key]
        self._presence(key, line["status"], line)
        if line["status"] != 200 or not line["results"]:
            return
        ids, figures = self._world.streams[key], self._report.figures
        positions = [position for position, _ in line["results"]]
        first, last = positions[0], positions[-1]
        if positions != list(range(first, last + 1)):
            self._wrong("order", "positions are not one after the other", line)
        for position, id in line["results"]:
            if not 0 < position <= len(ids) or ids[position - 1] != id:
                self._wrong("order", f"position {position} is not {id}", line)
        figures["results received"] += len(positions)
        figures["results received again"] += sum(position <= held.received for position in positions)
        if line["after"] is None:
            self._position(key, first - 1, line)
        elif first != line["after"] + 1:
            self._wrong("result lost", f"nothing between {line['after']} and {first}", line)
        if first > held.received + 1:
            if key not in self._doubtful and self._binds(held.fact, line):
                self._wrong("result lost", f"nothing between {held.received} and {first}", line)
            return
        self._time(held, line)
        held.received = max(held.received, last)

    def _time(self, held: _Subscription, line: Line) -> None:
        for position, id in line["results"]:
            answered = self._world.answered_at.get(id, float("inf"))
            if position > held.received and answered > held.since:
                self._report.slowest_s = max(self._report.slowest_s, line["got"] - answered)

    def _list(self, line: Line) -> None:
        if line["status"] != 200:
            return
        for key in line["found"].keys() - self._held.keys():
            self._wrong("stranger", f"{key} was never subscribed to", line)
        for key in self._held:
            self._presence(key, 200 if key in line["found"] else 404, line)
            if key in line["found"]:
                position, head = line["found"][key]
                self._position(key, position, line)
                if head > len(self._world.streams[key]):
                    self._wrong("position", f"head {head} of {key} is beyond the stream", line)

    def _told(self, line: Line) -> None:
        """A connection that was opened after the end of a subscription is not told of its stream."""
        held = self._held.get(line["key"])
        if held is None or held.fact.exists is not False or line["key"] in self._doubtful:
            return
        span = {**line, "sent": line["opened"], "got": line["at"]}
        if line["opened"] > held.fact.answered > 0 and self._binds(held.fact, span):
            self._wrong("end undone", "a notification of its stream", line)

    def _end(self, final: Line | None) -> None:
        """Check that in the end all that was answered holds, and everything was received."""
        if final is None or final["status"] != 200:
            self._wrong("end", "there is no list of subscriptions in the end", final or {})
            return
        for key, held in self._held.items():
            if key in self._doubtful or held.fact.exists is None:
                self._report.figures["not judged in the end"] += 1
                continue
            is_there = key in final["found"]
            if held.fact.exists != is_there:
                self._wrong("end undone" if is_there else "subscription undone", f"{key} in the end", final)
            if not held.fact.exists or not is_there:
                continue
            ids = self._world.streams[key]
            if held.received != len(ids):
                self._wrong("result lost", f"{key}: received {held.received} of {len(ids)} in the end", final)
            highest = max([held.start, *(position for position, _ in held.acknowledged)])
            if not highest <= final["found"][key][0] <= held.offered:
                self._wrong("acknowledgement undone", f"{key} in the end, {highest} was answered", final)
            there = set(ids[held.start :])
            for record in self._world.log:
                id = str(record["id"])
                if self._world.sent_at.get(id, 0) > held.since and matches(key, record) and id not in there:
                    self._wrong("result lost", f"{key}: {id} was published later and is not there", final)
