"""One broker, and small networks, step by step: the example of section 4.1, and failures."""

from __future__ import annotations

import doctest
import importlib

import pytest

from newsstand.errors import BadMessage
from newsstand.overlay.broker.broker import OverlayBroker
from newsstand.overlay.broker.effects import Deliver, RequestAnswer, Send, StoreEvent
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import MOST_HOPS, Advertise, Publication, Publish, StorageRequest, StorageResponse
from newsstand.overlay.simulation import OverlayNetwork
from newsstand.overlay.topology import Topology

STORMS = Filter.of_topic("storms")


@pytest.mark.parametrize(
    "module",
    [
        "filters.value_sets",
        "filters.filter",
        "messages",
        "broker.broker",
        "simulation",
        "topology",
    ],
)
def test_examples_in_the_code_are_right(module: str) -> None:
    assert doctest.testmod(importlib.import_module(f"newsstand.overlay.{module}")).failed == 0


def line_of_four(order: None = None) -> OverlayNetwork:
    return OverlayNetwork.of(Topology(4, ((1, 2), (2, 3), (3, 4))), order)


def test_late_client_reads_from_nearer_of_two_storages() -> None:
    network = line_of_four()
    network.act(1, lambda broker: broker.become_storage(["storms"]))
    network.act(3, lambda broker: broker.become_storage(["storms", "fires"]))
    network.run()
    network.act(2, lambda broker: broker.publish("storms", {"severity": 4}, at_ms=1))
    network.run()
    assert {one.broker for one in network.effects if isinstance(one.effect, StoreEvent)} == {1, 3}

    number = network.request(4, "ann", Filter.parse("topic = 'storms' and severity > 3"))
    network.run()
    [answer, last] = [one.effect for one in network.effects if isinstance(one.effect, RequestAnswer)]
    assert [publication.id for publication in answer.publications] == [(2, 1)]
    assert last == RequestAnswer("ann", number, finished=True)
    assert network.traffic[4, 3]["StorageRequest"] == network.traffic[3, 4]["StorageResponse"] == 1
    assert network.traffic[3, 2]["StorageRequest"] == 0


def test_requests_spread_over_storages_that_are_equally_near() -> None:
    network = OverlayNetwork.of(Topology(3, ((1, 2), (1, 3))))
    for name in (2, 3):
        network.act(name, lambda broker: broker.become_storage(["storms"]))
    network.run()
    for _ in range(100):
        network.request(1, "ann", STORMS)
    network.run()
    taken = [network.traffic[1, name]["StorageRequest"] for name in (2, 3)]
    assert sum(taken) == 100
    assert min(taken) >= 35


def test_limited_request_continues_after_position() -> None:
    broker = OverlayBroker("a", batch=2)
    broker.become_storage(["storms"])
    for at_ms in range(5):
        broker.publish("storms", at_ms=at_ms)
    _, answers = broker.request("ann", STORMS, limit=3)
    assert [[one.at_ms for one in answer.publications] for answer in answers] == [[0, 1], [2], []]
    assert answers[-1].more == ("storms",)
    _, answers = broker.request("ann", STORMS, after=answers[1].publications[-1].position, limit=3)
    assert [[one.at_ms for one in answer.publications] for answer in answers] == [[3, 4], []]
    assert answers[-1].more == ()


def test_topic_without_storage_unavailable_at_once() -> None:
    broker = OverlayBroker("a")
    number, answers = broker.request("ann", Filter.parse("topic in ('storms', 'fires')"))
    assert answers == [RequestAnswer("ann", number, finished=True, unavailable=("fires", "storms"))]
    number, answers = broker.request("ann", Filter.parse("severity > 3"))
    assert answers == [RequestAnswer("ann", number, finished=True)]


def asked() -> tuple[OverlayBroker, int]:
    broker = OverlayBroker("a")
    broker.link_up("b")
    broker.receive("b", Advertise(("storms",), (("b", 1),)))
    number, _ = broker.request("ann", STORMS)
    return broker, number


def test_lost_link_makes_requested_topics_unavailable() -> None:
    broker, number = asked()
    assert broker.link_down("b") == [RequestAnswer("ann", number, finished=True, unavailable=("storms",))]


def test_request_given_up_drops_later_responses() -> None:
    broker, number = asked()
    assert broker.give_up(number) == [RequestAnswer("ann", number, finished=True, unavailable=("storms",))]
    assert broker.give_up(number) == []
    assert broker.receive("b", StorageResponse(number, ("storms",), ("a",), "end")) == []
    assert broker.dropped == {"response too late": 1}


def test_answer_with_a_gap_is_unavailable() -> None:
    broker, number = asked()
    [answer, last] = broker.receive(
        "b", StorageResponse(number, ("storms",), ("a",), "end", (Publication("b", 1, "storms"),), 2)
    )
    assert answer.publications
    assert last.unavailable == ("storms",)


def test_open_requests_beyond_the_limit_end_the_oldest() -> None:
    broker = OverlayBroker("a", most_requests=2)
    broker.link_up("b")
    broker.receive("b", Advertise(("storms",), (("b", 1),)))
    numbers = [broker.request("ann", STORMS)[0] for _ in range(2)]
    _, out = broker.request("ann", STORMS)
    assert out[0] == RequestAnswer("ann", numbers[0], finished=True, unavailable=("storms",))
    assert len(broker.requests) == 2


def test_removed_client_loses_subscriptions_and_requests() -> None:
    broker, _ = asked()
    broker.subscribe("ann", STORMS)
    broker.subscribe("bob", STORMS)
    assert broker.remove_client("ann") == []
    assert len(broker.requests) == 0
    assert [out.message.filter for out in broker.remove_client("bob")] == [STORMS]  # type: ignore[union-attr]


def test_request_in_a_loop_returns_nowhere() -> None:
    broker, _ = asked()
    request = StorageRequest(1, STORMS, ("storms",), ("z", "a", "b"))
    assert broker.receive("b", request) == [Send("b", StorageResponse(1, ("storms",), ("b", "a", "z"), "nowhere"))]


def test_request_beyond_hop_limit_returns_nowhere() -> None:
    broker, _ = asked()
    path = (*(f"n{number}" for number in range(MOST_HOPS - 2)), "b")
    [back] = broker.receive("b", StorageRequest(1, STORMS, ("storms",), path))
    assert back.message.state == "nowhere"  # type: ignore[union-attr]


def test_response_dropped_when_it_cannot_return() -> None:
    broker, _ = asked()
    assert broker.receive("b", StorageResponse(1, ("storms",), ("a", "gone"), "end")) == []
    assert broker.receive("b", StorageResponse(1, ("storms",), ("c", "a"), "end")) == []
    assert broker.receive("b", StorageResponse(1, ("storms",), (), "end")) == []
    assert broker.dropped == {"response cannot return": 1, "path of another broker": 2}


def test_messages_of_strangers_and_false_paths_dropped() -> None:
    broker = OverlayBroker("a")
    assert broker.receive("b", Publish(Publication("b", 1, "storms"))) == []
    broker.link_up("b")
    assert broker.receive("b", Advertise(("storms",), (("c", 1), ("b", 1)))) == []
    assert broker.advertisements.rows() == {}
    assert broker.dropped == {"from an unknown neighbour": 1, "path of another broker": 1}
    assert broker.link_down("c") == []
    assert broker.set_tree("c", True) == []


def test_repeated_publication_delivered_once() -> None:
    broker = OverlayBroker("a", remembered=2)
    broker.link_up("b")
    broker.subscribe("ann", STORMS)
    storms = [Publish(Publication("b", number, "storms")) for number in (1, 2, 3)]
    assert broker.receive("b", storms[0]) == [Deliver("ann", storms[0].publication)]
    assert broker.receive("b", storms[0]) == []
    for storm in storms[1:]:
        broker.receive("b", storm)
    assert broker.receive("b", storms[0]), "the memory is limited"


def test_repeated_publication_stays_remembered() -> None:
    broker = OverlayBroker("a", remembered=2)
    broker.link_up("b")
    broker.subscribe("ann", STORMS)
    storms = [Publication("b", number, "storms") for number in (1, 2, 3)]
    for storm in (storms[0], storms[1], storms[0], storms[2]):
        broker.receive("b", Publish(storm))
    assert broker.receive("b", Publish(storms[0], attempt=1)) == []
    assert broker.receive("b", Publish(storms[1], attempt=1)) == [Deliver("ann", storms[1])]


def test_resent_publication_skips_own_clients() -> None:
    broker = OverlayBroker("a", remembered=1)
    broker.subscribe("ann", STORMS)
    first, second = (broker.compose("storms", at_ms=number) for number in (1, 2))
    assert broker.send(first, receipt=True) == [Deliver("ann", first)]
    assert broker.send(second, receipt=True) == [Deliver("ann", second)]
    assert broker.send(first, attempt=1, receipt=True) == []


def test_publication_stops_at_hop_limit() -> None:
    broker = OverlayBroker("a")
    broker.link_up("b")
    broker.link_up("c")
    broker.subscriptions.receive("c", STORMS)
    assert broker.receive("b", Publish(Publication("b", 1, "storms"), MOST_HOPS)) == []
    assert broker.dropped == {"publication exceeded the hop limit": 1}


def test_storage_forgets_a_dropped_topic() -> None:
    broker = OverlayBroker("a")
    broker.become_storage(["storms", "fires"])
    broker.publish("storms", at_ms=1)
    broker.become_storage(["fires"])
    broker.become_storage(["fires", "storms"])
    _, [last] = broker.request("ann", STORMS)
    assert last == RequestAnswer("ann", 2, finished=True)


@pytest.mark.parametrize(
    ("topic", "attributes", "expected"),
    [
        ("", {}, "'' is not a valid topic"),
        ("x" * 257, {}, "is not a valid topic"),
        ("\ud800", {}, "is not a valid topic"),
        ("a\nb", {}, r"'a\\nb' is not a valid topic"),
        ("\x7f", {}, "is not a valid topic"),
        ("storms", {"topic": "fires"}, "'topic' cannot be the name of an attribute"),
        ("storms", {"": 1}, "'' cannot be the name of an attribute"),
        ("storms", {"x": None}, "attribute x: None is not a text, a number or a boolean"),
        ("storms", {"x": 2**63}, "attribute x: 9223372036854775808 is not"),
        ("storms", {"x": float("inf")}, "attribute x: inf is not"),
    ],
)
def test_publication_rejected_when_neighbours_could_not_decode_it(topic, attributes, expected) -> None:
    broker = OverlayBroker("a")
    with pytest.raises(BadMessage, match=expected):
        broker.publish(topic, attributes, at_ms=0)
    if topic != "storms":
        with pytest.raises(BadMessage, match="is not a valid topic"):
            broker.become_storage(["fires", topic])
        assert broker.advertisements.own == frozenset()


def test_link_traffic_counted() -> None:
    network = OverlayNetwork()
    network.add("a")
    network.add("b")
    network.link("a", "b")
    network.act("a", lambda broker: broker.subscribe("ann", STORMS))
    network.unlink("a", "b")
    assert network.lost == 1
    assert network.run() == 0
    assert network.traffic["a", "b"] == {"Subscribe": 1}


def test_network_without_end_raises() -> None:
    network = line_of_four()
    network.act(1, lambda broker: broker.subscribe("ann", STORMS))
    with pytest.raises(RuntimeError, match="1 messages have arrived, and 1 are in flight"):
        network.run(most=1)
