"""Receipts, attempts, and storages that search each other."""

from __future__ import annotations

import pytest

from newsstand.errors import BadMessage
from newsstand.overlay.broker.effects import (
    Confirmation,
    Deliver,
    Effect,
    RequestAnswer,
    SeekResult,
    Send,
    Serve,
    StoreEvent,
    TreeChange,
)
from newsstand.overlay.broker.replicating import ReplicatingBroker
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import MOST_TOPICS, Publication, batch_of, decode_batch, encode
from newsstand.overlay.simulation import OverlayNetwork
from newsstand.overlay.topology import Topology

STORMS = Filter.of_topic("storms")


class Line:
    """Brokers 1 to n in a line; requests are answered immediately."""

    def __init__(self, length: int) -> None:
        edges = tuple((one, one + 1) for one in range(1, length))
        self.network = OverlayNetwork.of(Topology(length, edges), make=ReplicatingBroker)

    def broker(self, name: int) -> ReplicatingBroker:
        broker = self.network.brokers[name]
        assert isinstance(broker, ReplicatingBroker)
        return broker

    def act(self, name: int, outs: list[Effect]) -> list[tuple[object, Effect]]:
        """Return the effects other than sent messages."""
        self.network.act(name, lambda _: outs)
        effects: list[tuple[object, Effect]] = []
        while self.network.in_flight or self.network.effects:
            self.network.run()
            now, self.network.effects = self.network.effects, []
            for broker, out in now:
                if isinstance(out, Serve):
                    asked = out.request
                    found = self.broker(broker).storage.matching(asked.filter, asked.topics, asked.after)
                    answered = self.broker(broker).answer(asked, found)
                    self.network.act(broker, lambda _, answered=answered: answered)
                else:
                    effects.append((broker, out))
        return effects


def published(line: Line, at: int, number_ms: int) -> Publication:
    return line.broker(at).compose("storms", at_ms=number_ms)


def test_receipt_returned_by_every_storage() -> None:
    line = Line(5)
    for storage in (1, 3, 5):
        line.act(storage, line.broker(storage).start_storing("storms"))
    storm = published(line, 3, 1000)
    effects = line.act(3, line.broker(3).send(storm, receipt=True))
    assert [out for _, out in effects if isinstance(out, Confirmation)] == [Confirmation((3, 1))] * 3
    assert sorted(broker for broker, out in effects if isinstance(out, StoreEvent)) == [1, 3, 5]
    again = line.act(3, line.broker(3).send(storm, attempt=1, receipt=True))
    assert [out for _, out in again] == [Confirmation((3, 1))] * 3


def test_resent_publication_reaches_where_it_was_lost() -> None:
    line = Line(3)
    for client in (2, 3):
        line.act(client, line.broker(client).subscribe("ann", STORMS))
    storm = published(line, 1, 1000)
    [sent] = line.broker(1).send(storm)
    assert isinstance(sent, Send)
    delivered, lost = line.broker(2).receive(1, sent.message)
    assert isinstance(delivered, Deliver)
    assert isinstance(lost, Send)
    effects = line.act(1, line.broker(1).send(storm, attempt=1))
    assert effects == [(3, Deliver("ann", storm))]
    assert line.act(1, line.broker(1).send(storm, attempt=1)) == []


def test_late_publication_is_for_storages_alone() -> None:
    line = Line(2)
    line.act(2, line.broker(2).start_storing("storms"))
    line.act(2, line.broker(2).subscribe("ann", STORMS))
    storm = published(line, 1, 1000)
    assert line.act(1, line.broker(1).send(storm, attempt=1, late=True)) == [(2, StoreEvent(storm))]
    assert line.act(1, line.broker(1).send(storm, attempt=2)) == [(2, Deliver("ann", storm))]


def test_seek_finds_all_storages() -> None:
    line = Line(4)
    for storage in (1, 2, 4):
        line.act(storage, line.broker(storage).start_storing("storms"))
        line.act(storage, line.broker(storage).advertise(["storms"]))
    storm = published(line, 3, 1000)
    line.act(3, line.broker(3).send(storm))
    line.broker(2).storage.forget("storms")
    number, outs = line.broker(1).seek(["storms", "quakes"])
    found = [out for _, out in line.act(1, outs)]
    assert found == [SeekResult(number, ("storms",), (2,)), SeekResult(number, ("storms",), (2, 3, 4))]
    for located, expected in zip(found, ((), (storm,)), strict=True):
        assert isinstance(located, SeekResult)
        number, outs = line.broker(1).request_from(located.route, "copier", "storms")
        answers = [out for _, out in line.act(1, outs) if isinstance(out, RequestAnswer)]
        assert tuple(one for answer in answers for one in answer.publications) == expected
        assert answers[-1].finished
        assert not answers[-1].unavailable


def test_seek_rejected_for_too_many_topics() -> None:
    broker = ReplicatingBroker("a")
    broker.seek(f"t{number}" for number in range(MOST_TOPICS))
    with pytest.raises(BadMessage, match="search: 513 topics, at most 512 are allowed"):
        broker.seek(f"t{number}" for number in range(MOST_TOPICS + 1))


def test_unreachable_storage_makes_topic_unavailable() -> None:
    line = Line(3)
    for way in ((2, 9), (9,), ()):
        _, outs = line.broker(1).request_from(way, "copier", "storms")
        [(_, answer)] = line.act(1, outs)
        assert isinstance(answer, RequestAnswer)
        assert answer.unavailable == ("storms",)


def test_link_change_reaches_every_broker() -> None:
    line = Line(4)
    assert sorted(line.act(2, line.broker(2).announce_link())) == [
        (1, TreeChange()),
        (3, TreeChange()),
        (4, TreeChange()),
    ]


def test_batch_round_trips() -> None:
    line = Line(2)
    line.act(2, line.broker(2).start_storing("storms"))
    _number, outs = line.broker(1).seek(["storms"])
    outs += line.broker(1).send(published(line, 1, 5), receipt=True) + line.broker(1).announce_link()
    messages = [out.message for out in outs if isinstance(out, Send)]
    assert len(messages) == 3
    assert decode_batch(batch_of(list(map(encode, messages)))) == messages
