"""Receipts, attempts, and storages that find each other."""

from __future__ import annotations

import pytest

from newsstand.errors import BadMessage
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import MOST_TOPICS, Publication, decode_batch, encode_batch
from newsstand.overlay.network import Network
from newsstand.overlay.open_requests import Answer
from newsstand.overlay.outcomes import Changed, Deliver, Kept, Located, Out, Receipt, Send, Serve
from newsstand.overlay.replication import ReplicatingBroker
from newsstand.overlay.topology import Topology

STORMS = Filter.of_topic("storms")


class Line:
    """Brokers 1 to n in a line; requests are answered at once."""

    def __init__(self, length: int) -> None:
        edges = tuple((one, one + 1) for one in range(1, length))
        self.network = Network.of(Topology(length, edges), make=ReplicatingBroker)

    def broker(self, name: int) -> ReplicatingBroker:
        broker = self.network.brokers[name]
        assert isinstance(broker, ReplicatingBroker)
        return broker

    def act(self, name: int, outs: list[Out]) -> list[tuple[object, Out]]:
        """What comes of it, but for what is sent."""
        self.network.act(name, lambda _: outs)
        told: list[tuple[object, Out]] = []
        while self.network.in_flight or self.network.told:
            self.network.run()
            now, self.network.told = self.network.told, []
            for broker, out in now:
                if isinstance(out, Serve):
                    asked = out.request
                    found = self.broker(broker).storage.matching(asked.filter, asked.topics, asked.after)
                    answered = self.broker(broker).answer(asked, found)
                    self.network.act(broker, lambda _, answered=answered: answered)
                else:
                    told.append((broker, out))
        return told


def published(line: Line, at: int, number_ms: int) -> Publication:
    return line.broker(at).compose("storms", at_ms=number_ms)


def test_a_receipt_comes_back_from_every_storage() -> None:
    line = Line(5)
    for storage in (1, 3, 5):
        line.act(storage, line.broker(storage).keep("storms"))
    storm = published(line, 3, 1000)
    told = line.act(3, line.broker(3).send(storm, receipt=True))
    assert [out for _, out in told if isinstance(out, Receipt)] == [Receipt((3, 1))] * 3
    assert sorted(broker for broker, out in told if isinstance(out, Kept)) == [1, 3, 5]
    again = line.act(3, line.broker(3).send(storm, attempt=1, receipt=True))
    assert [out for _, out in again] == [Receipt((3, 1))] * 3


def test_what_is_sent_again_gets_where_it_was_lost_and_is_delivered_once() -> None:
    line = Line(3)
    for client in (2, 3):
        line.act(client, line.broker(client).subscribe("ann", STORMS))
    storm = published(line, 1, 1000)
    [sent] = line.broker(1).send(storm)
    assert isinstance(sent, Send)
    delivered, lost = line.broker(2).receive(1, sent.message)
    assert isinstance(delivered, Deliver)
    assert isinstance(lost, Send)
    told = line.act(1, line.broker(1).send(storm, attempt=1))
    assert told == [(3, Deliver("ann", storm))]
    assert line.act(1, line.broker(1).send(storm, attempt=1)) == []


def test_what_is_late_is_for_storages_alone_and_may_still_be_delivered_later() -> None:
    line = Line(2)
    line.act(2, line.broker(2).keep("storms"))
    line.act(2, line.broker(2).subscribe("ann", STORMS))
    storm = published(line, 1, 1000)
    assert line.act(1, line.broker(1).send(storm, attempt=1, late=True)) == [(2, Kept(storm))]
    assert line.act(1, line.broker(1).send(storm, attempt=2)) == [(2, Deliver("ann", storm))]


def test_a_search_finds_all_others_and_each_can_be_asked_past_a_nearer_one() -> None:
    line = Line(4)
    for storage in (1, 2, 4):
        line.act(storage, line.broker(storage).keep("storms"))
        line.act(storage, line.broker(storage).advertise(["storms"]))
    storm = published(line, 3, 1000)
    line.act(3, line.broker(3).send(storm))
    line.broker(2).storage.forget("storms")
    number, outs = line.broker(1).seek(["storms", "quakes"])
    found = [out for _, out in line.act(1, outs)]
    assert found == [Located(number, ("storms",), (2,)), Located(number, ("storms",), (2, 3, 4))]
    for located, expected in zip(found, ((), (storm,)), strict=True):
        assert isinstance(located, Located)
        number, outs = line.broker(1).request_from(located.way, "copier", "storms")
        answers = [out for _, out in line.act(1, outs) if isinstance(out, Answer)]
        assert tuple(one for answer in answers for one in answer.publications) == expected
        assert answers[-1].finished
        assert not answers[-1].missing


def test_a_search_for_too_many_topics_is_refused() -> None:
    broker = ReplicatingBroker("a")
    broker.seek(f"t{number}" for number in range(MOST_TOPICS))
    with pytest.raises(BadMessage, match="search: 513 topics, but there is room for 512"):
        broker.seek(f"t{number}" for number in range(MOST_TOPICS + 1))


def test_a_storage_that_cannot_be_reached_is_missing() -> None:
    line = Line(3)
    for way in ((2, 9), (9,), ()):
        _, outs = line.broker(1).request_from(way, "copier", "storms")
        [(_, answer)] = line.act(1, outs)
        assert isinstance(answer, Answer)
        assert answer.missing == ("storms",)


def test_everybody_hears_that_a_link_has_begun() -> None:
    line = Line(4)
    assert sorted(line.act(2, line.broker(2).mended())) == [(1, Changed()), (3, Changed()), (4, Changed())]


def test_a_batch_is_read_as_it_was_written() -> None:
    line = Line(2)
    line.act(2, line.broker(2).keep("storms"))
    _number, outs = line.broker(1).seek(["storms"])
    outs += line.broker(1).send(published(line, 1, 5), receipt=True) + line.broker(1).mended()
    messages = [out.message for out in outs if isinstance(out, Send)]
    assert len(messages) == 3
    assert decode_batch(encode_batch(messages)) == messages
