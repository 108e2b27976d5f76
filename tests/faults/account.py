"""Recomputes from the journal of one subscriber what it had to be answered and to receive.

It knows nothing of the platform but what it promises:

- What is answered with `Newsstand-Durability: replicated` holds at every broker from then on. What a broker alone
  has holds there from then on, and everywhere in the end.
- While the coordinator is away a broker cannot know what happened at others: what it says of a subscriber that was
  elsewhere in between binds nobody.
- In the end, when everything runs, all that was answered holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from faults.findings import Report, World
from faults.interests import matches
from faults.journal import Line


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


class Account:
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
        status, number = line["status"], line["session"]
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
        if line["status"] == 200 and line.get("durability") == "replicated" and held.fact.exists:
            held.fact = self._fact(True, line)  # changes leave a broker in order

    def _presence(self, key: str, status: int | None, line: Line) -> None:
        """Check that a subscription answers if there is one, and is 404 if there is none."""
        held = self._held[key]
        if key in self._doubtful or not self._binds(held.fact, line):
            return
        self._report.figures["subscriptions checked"] += 1
        if status == 404 and held.fact.exists:
            self._wrong("subscription undone", "it is not there", line)
        if status in (200, 422) and not held.fact.exists:
            self._wrong("end undone", "the subscription is there", line)

    def _position(self, key: str, position: int, line: Line) -> None:
        """Check an acknowledged position: not below what was acknowledged, not above what was offered."""
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
            self._wrong("order", "positions are not one after the other", line)
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
