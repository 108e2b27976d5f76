"""One broker, and small networks, step by step: the example of section 4.1, and what goes wrong."""

from __future__ import annotations

import doctest
import importlib

import pytest

from newsstand.errors import BadMessage
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import MOST_HOPS, Advertise, Publication, Publish, Request, Response
from newsstand.overlay.network import Network
from newsstand.overlay.node import Deliver, Kept, OverlayBroker, Send
from newsstand.overlay.open_requests import Answer
from newsstand.overlay.topology import Topology

STORMS = Filter.of_topic("storms")


@pytest.mark.parametrize(
    "module", ["value_sets", "filters", "messages", "node", "network", "generators", "topology"]
)
def test_examples_in_the_code_are_right(module: str) -> None:
    assert doctest.testmod(importlib.import_module(f"newsstand.overlay.{module}")).failed == 0


def line_of_four(order: None = None) -> Network:
    return Network.of(Topology(4, ((1, 2), (2, 3), (3, 4))), order)


def test_a_publication_is_kept_by_two_storages_and_a_late_client_gets_it_from_the_nearer_one() -> None:
    network = line_of_four()
    network.act(1, lambda broker: broker.become_storage(["storms"]))
    network.act(3, lambda broker: broker.become_storage(["storms", "fires"]))
    network.run()
    network.act(2, lambda broker: broker.publish("storms", {"severity": 4}, at_ms=1))
    network.run()
    assert {told.broker for told in network.told if isinstance(told.out, Kept)} == {1, 3}

    number = network.request(4, "ann", Filter.parse("topic = 'storms' and severity > 3"))
    network.run()
    [answer, last] = [told.out for told in network.told if isinstance(told.out, Answer)]
    assert [publication.id for publication in answer.publications] == [(2, 1)]
    assert last == Answer("ann", number, finished=True)
    assert network.crossed[4, 3].messages["Request"] == network.crossed[3, 4].messages["Response"] == 1
    assert network.crossed[3, 2].messages["Request"] == 0


def test_requests_spread_over_storages_that_are_equally_near() -> None:
    network = Network.of(Topology(3, ((1, 2), (1, 3))))
    for name in (2, 3):
        network.act(name, lambda broker: broker.become_storage(["storms"]))
    network.run()
    for _ in range(100):
        network.request(1, "ann", STORMS)
    network.run()
    taken = [network.crossed[1, name].messages["Request"] for name in (2, 3)]
    assert sum(taken) == 100
    assert min(taken) >= 35


def test_a_limit_is_kept_and_reading_goes_on_after_it() -> None:
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


def test_what_nobody_stores_is_missing_at_once() -> None:
    broker = OverlayBroker("a")
    number, answers = broker.request("ann", Filter.parse("topic in ('storms', 'fires')"))
    assert answers == [Answer("ann", number, finished=True, missing=("fires", "storms"))]
    number, answers = broker.request("ann", Filter.parse("severity > 3"))
    assert answers == [Answer("ann", number, finished=True)]


def asked() -> tuple[OverlayBroker, int]:
    broker = OverlayBroker("a")
    broker.link_up("b")
    broker.receive("b", Advertise(("storms",), (("b", 1),)))
    number, _ = broker.request("ann", STORMS)
    return broker, number


def test_when_the_link_is_lost_the_client_is_told_what_is_missing() -> None:
    broker, number = asked()
    assert broker.link_down("b") == [Answer("ann", number, finished=True, missing=("storms",))]


def test_who_gives_up_is_told_what_is_missing_and_later_responses_are_dropped() -> None:
    broker, number = asked()
    assert broker.give_up(number) == [Answer("ann", number, finished=True, missing=("storms",))]
    assert broker.give_up(number) == []
    assert broker.receive("b", Response(number, ("storms",), ("a",), "end")) == []
    assert broker.dropped == {"response too late": 1}


def test_an_answer_with_a_hole_is_told_as_missing() -> None:
    broker, number = asked()
    [answer, last] = broker.receive(
        "b", Response(number, ("storms",), ("a",), "end", (Publication("b", 1, "storms"),), 2)
    )
    assert answer.publications
    assert last.missing == ("storms",)


def test_too_many_open_requests_end_the_oldest() -> None:
    broker = OverlayBroker("a", most_requests=2)
    broker.link_up("b")
    broker.receive("b", Advertise(("storms",), (("b", 1),)))
    numbers = [broker.request("ann", STORMS)[0] for _ in range(2)]
    _, out = broker.request("ann", STORMS)
    assert out[0] == Answer("ann", numbers[0], finished=True, missing=("storms",))
    assert len(broker.requests) == 2


def test_a_client_that_goes_takes_its_subscriptions_and_requests_along() -> None:
    broker, _ = asked()
    broker.subscribe("ann", STORMS)
    broker.subscribe("bob", STORMS)
    assert broker.client_gone("ann") == []
    assert len(broker.requests) == 0
    assert [out.message.filter for out in broker.client_gone("bob")] == [STORMS]  # type: ignore[union-attr]


def test_a_request_in_a_ring_comes_back_as_nowhere() -> None:
    broker, _ = asked()
    request = Request(1, STORMS, ("storms",), ("z", "a", "b"))
    assert broker.receive("b", request) == [Send("b", Response(1, ("storms",), ("b", "a", "z"), "nowhere"))]


def test_a_request_that_has_gone_too_far_comes_back_as_nowhere() -> None:
    broker, _ = asked()
    path = (*(f"n{number}" for number in range(MOST_HOPS - 2)), "b")
    [back] = broker.receive("b", Request(1, STORMS, ("storms",), path))
    assert back.message.state == "nowhere"  # type: ignore[union-attr]


def test_a_response_whose_way_back_is_gone_is_dropped() -> None:
    broker, _ = asked()
    assert broker.receive("b", Response(1, ("storms",), ("a", "gone"), "end")) == []
    assert broker.receive("b", Response(1, ("storms",), ("c", "a"), "end")) == []
    assert broker.receive("b", Response(1, ("storms",), (), "end")) == []
    assert broker.dropped == {"response cannot return": 1, "path of another": 2}


def test_strangers_and_false_paths_are_not_listened_to() -> None:
    broker = OverlayBroker("a")
    assert broker.receive("b", Publish(Publication("b", 1, "storms"))) == []
    broker.link_up("b")
    assert broker.receive("b", Advertise(("storms",), (("c", 1), ("b", 1)))) == []
    assert broker.advertisements.rows() == {}
    assert broker.dropped == {"from a stranger": 1, "path of another": 1}
    assert broker.link_down("c") == []
    assert broker.set_tree("c", True) == []


def test_a_publication_that_comes_twice_is_delivered_once() -> None:
    broker = OverlayBroker("a", remembered=2)
    broker.link_up("b")
    broker.subscribe("ann", STORMS)
    storms = [Publish(Publication("b", number, "storms")) for number in (1, 2, 3)]
    assert broker.receive("b", storms[0]) == [Deliver("ann", storms[0].publication)]
    assert broker.receive("b", storms[0]) == []
    for storm in storms[1:]:
        broker.receive("b", storm)
    assert broker.receive("b", storms[0]), "the memory is limited"


def test_a_publication_that_comes_again_and_again_is_not_forgotten_before_those_that_do_not() -> None:
    broker = OverlayBroker("a", remembered=2)
    broker.link_up("b")
    broker.subscribe("ann", STORMS)
    storms = [Publication("b", number, "storms") for number in (1, 2, 3)]
    for storm in (storms[0], storms[1], storms[0], storms[2]):
        broker.receive("b", Publish(storm))
    assert broker.receive("b", Publish(storms[0], attempt=1)) == []
    assert broker.receive("b", Publish(storms[1], attempt=1)) == [Deliver("ann", storms[1])]


def test_what_a_broker_sends_again_is_not_for_its_own_clients() -> None:
    broker = OverlayBroker("a", remembered=1)
    broker.subscribe("ann", STORMS)
    first, second = (broker.compose("storms", at_ms=number) for number in (1, 2))
    assert broker.send(first, receipt=True) == [Deliver("ann", first)]
    assert broker.send(second, receipt=True) == [Deliver("ann", second)]
    assert broker.send(first, attempt=1, receipt=True) == []


def test_a_publication_goes_only_so_far() -> None:
    broker = OverlayBroker("a")
    broker.link_up("b")
    broker.link_up("c")
    broker.subscriptions.hear("c", STORMS)
    assert broker.receive("b", Publish(Publication("b", 1, "storms"), MOST_HOPS)) == []
    assert broker.dropped == {"publication went too far": 1}


def test_a_storage_that_gives_up_a_topic_forgets_it() -> None:
    broker = OverlayBroker("a")
    broker.become_storage(["storms", "fires"])
    broker.publish("storms", at_ms=1)
    broker.become_storage(["fires"])
    broker.become_storage(["fires", "storms"])
    _, [last] = broker.request("ann", STORMS)
    assert last == Answer("ann", 2, finished=True)


@pytest.mark.parametrize(
    ("topic", "attributes", "told"),
    [
        ("", {}, "'' cannot be a topic"),
        ("x" * 257, {}, "cannot be a topic"),
        ("\ud800", {}, "cannot be a topic"),
        ("a\nb", {}, r"'a\\nb' cannot be a topic"),
        ("\x7f", {}, "cannot be a topic"),
        ("storms", {"topic": "fires"}, "'topic' cannot be the name of an attribute"),
        ("storms", {"": 1}, "'' cannot be the name of an attribute"),
        ("storms", {"x": None}, "attribute x: None is not a text, a number or a boolean"),
        ("storms", {"x": 2**63}, "attribute x: 9223372036854775808 is not"),
        ("storms", {"x": float("inf")}, "attribute x: inf is not"),
    ],
)
def test_what_neighbours_would_not_understand_is_refused_at_once(topic, attributes, told) -> None:
    broker = OverlayBroker("a")
    with pytest.raises(BadMessage, match=told):
        broker.publish(topic, attributes, at_ms=0)
    if topic != "storms":
        with pytest.raises(BadMessage, match="cannot be a topic"):
            broker.become_storage(["fires", topic])
        assert broker.advertisements.own == frozenset()


def test_links_count_what_crosses_them() -> None:
    network = Network(count_bytes=True)
    network.add("a")
    network.add("b")
    network.link("a", "b")
    network.act("a", lambda broker: broker.subscribe("ann", STORMS))
    network.unlink("a", "b")
    assert network.lost == 1
    assert network.run() == 0
    assert network.crossed["a", "b"].messages == {"Subscribe": 1}
    assert network.crossed["a", "b"].bytes == {"Subscribe": 28}


def test_a_network_that_never_rests_is_told() -> None:
    network = line_of_four()
    network.act(1, lambda broker: broker.subscribe("ann", STORMS))
    with pytest.raises(RuntimeError, match="1 messages have arrived, and 1 are in flight"):
        network.run(most=1)
