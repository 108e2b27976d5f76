"""The check of one subscriber's journal against the guarantees of the platform:

- A change answered with `Newsstand-Durability: replicated` is visible at every broker from then on. A change that
  only its broker has is visible there from then on, and everywhere at the end.
- While the coordinator is away, a broker cannot know the changes at other brokers: its answers about a subscriber
  that used another broker in between are not checked.
- At the end, when all processes run, all answered changes are visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from faults.findings import Report, World
from faults.interests import matches
from faults.journal import Line


@dataclass
class _Fact:
    """The last answer about a subscription or session: whether it exists; None if a request had no answer."""

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
    """The highest position in an acknowledgement that was sent."""


class Account:
    """The state of one subscriber, as its journal implies it."""

    def __init__(self, who: str, world: World, report: Report) -> None:
        self._who = who
        self._world = world
        self._report = report
        self._held: dict[str, _Subscription] = {}
        self._doubtful: set[str] = set()
        """Subscriptions changed at a broker that may not know their state: only contents are checked."""
        self._sessions: dict[int, _Fact] = {}
        self._verified = ""
        """The last broker that answered while the coordinator was reachable."""

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
                case "notified":
                    self._notified(line)
            if line["op"] not in ("login", "logout", "probe", "register", "notified", "choose", "open", "closed"):
                self._token(line)
            if line.get("status") is not None and line["status"] < 500 and self._world.asks_coordinator(line):
                self._verified = line["broker"]
        self._end(final)

    # Which facts a broker has to know

    def _binds(self, fact: _Fact, line: Line) -> bool:
        """Return whether the broker of an answer has to know a fact."""
        if fact.exists is None:
            return False
        return line["broker"] == fact.broker or (fact.is_replicated and self._world.asks_coordinator(line))

    def _fact(self, exists: bool, line: Line) -> _Fact:
        return _Fact(exists, line["broker"], line.get("durability") == "replicated", line["got"])

    def _changed(self, line: Line) -> None:
        """Record whether a broker changed a subscription whose state it may not know."""
        asks = self._world.asks_coordinator(line)
        self._report.figures["changes without the coordinator"] += not asks
        if line["broker"] != self._verified and not asks:
            self._doubtful.add(line["key"])
        elif line["durability"] == "replicated":
            self._doubtful.discard(line["key"])

    def _wrong(self, rule: str, what: str, line: Line) -> None:
        self._report.wrong(rule, self._who, what, line)

    # Sessions

    def _session(self, line: Line) -> None:
        status, number = line["status"], line["session"]
        if line["op"] == "login" and status == 200:
            self._sessions[number] = self._fact(True, line)
            self._report.figures["sessions"] += 1
        elif line["op"] == "login" and status == 401:
            self._wrong("account lost", "a login is rejected", line)
        elif line["op"] == "logout":
            self._sessions[number] = self._fact(False, line) if status == 204 else _Fact(None)
        elif line["op"] == "probe" and status == 200 and self._binds(self._sessions[number], line):
            self._wrong("session undone", f"the token of session {number} is accepted after its end", line)

    def _token(self, line: Line) -> None:
        fact = self._sessions.get(line["session"]) if line.get("status") == 401 else None
        if fact is not None and fact.exists and self._binds(fact, line):
            self._wrong("session lost", "its token is rejected", line)

    # Subscriptions

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
            self._wrong("subscription undone", "it exists, and the answer says that it is new", line)
        if status == 200 and held.fact.exists is False and binding:
            self._wrong("end undone", "the subscription exists after its end", line)
        self._changed(line)
        if line["position"] > line["head"] or line["head"] > len(self._world.streams[key]):
            self._wrong("position", "it starts after the head, or the head is after the end of the stream", line)
        start = line["position"]
        self._held[key] = _Subscription(self._fact(True, line), start, line["got"], start, [], start)

    def _unsubscribe(self, line: Line) -> None:
        key, status = line["key"], line["status"]
        held = self._held[key]
        if status not in (204, 404):
            held.fact = _Fact(None)
            return
        if status == 404 and held.fact.exists and self._binds(held.fact, line) and key not in self._doubtful:
            self._wrong("subscription undone", "the broker does not know it", line)
        self._changed(line)
        self._report.figures["ends"] += 1
        held.fact = self._fact(False, line)

    def _ack(self, line: Line) -> None:
        held = self._held[line["key"]]
        held.offered = max(held.offered, line["position"])
        if line["status"] == 200:
            self._report.figures["acknowledgements"] += 1
            if line["answered"] < line["position"]:
                self._wrong("acknowledgement", "the answer has a lower position", line)
            held.acknowledged.append((line["position"], self._fact(True, line)))
        self._presence(line["key"], line["status"], line)
        if line["status"] == 200 and line.get("durability") == "replicated" and held.fact.exists:
            held.fact = self._fact(True, line)  # a broker replicates changes in order

    def _presence(self, key: str, status: int | None, line: Line) -> None:
        """Check that a subscription is found if it exists, and answers 404 if not."""
        held = self._held[key]
        if key in self._doubtful or not self._binds(held.fact, line):
            return
        self._report.figures["subscriptions checked"] += 1
        if status == 404 and held.fact.exists:
            self._wrong("subscription undone", "it is not found", line)
        if status in (200, 422) and not held.fact.exists:
            self._wrong("end undone", "the subscription is found after its end", line)

    def _position(self, key: str, position: int, line: Line) -> None:
        """Check an acknowledged position: between the highest answered and the highest sent acknowledgement."""
        held = self._held[key]
        if key in self._doubtful or not held.fact.exists or not self._binds(held.fact, line):
            return
        self._report.figures["positions checked"] += 1
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
            self._wrong("order", "positions are not consecutive", line)
        for position, id in line["results"]:
            if not 0 < position <= len(ids) or ids[position - 1] != id:
                self._wrong("order", f"position {position} is not {id}", line)
        figures["results received"] += len(positions)
        figures["results received again"] += sum(position <= held.received for position in positions)
        highest = max([held.start, *(position for position, _ in held.acknowledged)])
        figures["acknowledged results received again"] += sum(position <= highest for position in positions)
        if line["after"] is None:
            self._position(key, first - 1, line)
        elif first != line["after"] + 1:
            self._wrong("result lost", f"no results between {line['after']} and {first}", line)
        if first > held.received + 1:
            if key not in self._doubtful and self._binds(held.fact, line):
                self._wrong("result lost", f"no results between {held.received} and {first}", line)
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
            self._wrong("stranger", f"there was no subscription to {key}", line)
        for key in self._held:
            self._presence(key, 200 if key in line["found"] else 404, line)
            if key in line["found"]:
                position, head = line["found"][key]
                self._position(key, position, line)
                if head > len(self._world.streams[key]):
                    self._wrong("position", f"head {head} of {key} is after the end of the stream", line)

    def _notified(self, line: Line) -> None:
        """Check that a connection opened after the end of a subscription gets no notifications of its stream."""
        held = self._held.get(line["key"])
        if held is None or held.fact.exists is not False or line["key"] in self._doubtful:
            return
        span = {**line, "sent": line["opened"], "got": line["at"]}
        if line["opened"] > held.fact.answered > 0 and self._binds(held.fact, span):
            self._wrong("end undone", "a notification of its stream", line)

    def _end(self, final: Line | None) -> None:
        """Check that at the end all answered changes are visible, and all results were received."""
        if final is None or final["status"] != 200:
            self._wrong("end", "no list of subscriptions at the end", final or {})
            return
        for key, held in self._held.items():
            if key in self._doubtful or held.fact.exists is None:
                self._report.figures["not checked at the end"] += 1
                continue
            is_there = key in final["found"]
            if held.fact.exists != is_there:
                self._wrong("end undone" if is_there else "subscription undone", f"{key} at the end", final)
            if not held.fact.exists or not is_there:
                continue
            ids = self._world.streams[key]
            if held.received != len(ids):
                self._wrong("result lost", f"{key}: received {held.received} of {len(ids)} at the end", final)
            highest = max([held.start, *(position for position, _ in held.acknowledged)])
            if not highest <= final["found"][key][0] <= held.offered:
                self._wrong("acknowledgement undone", f"{key} at the end; {highest} was acknowledged", final)
            there = set(ids[held.start :])
            for record in self._world.log:
                id = str(record["id"])
                if self._world.sent_at.get(id, 0) > held.since and matches(key, record) and id not in there:
                    self._wrong("result lost", f"{key}: {id} was published later and is missing", final)
