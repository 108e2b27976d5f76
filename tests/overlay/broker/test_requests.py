"""Gathers of a request: bounds, holders, completeness, and the cost of a silent broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from newsstand.model import OpportunisticPolicy
from newsstand.overlay.broker.caching import CachingBroker
from newsstand.overlay.broker.effects import Effect, RequestAnswer, Send
from newsstand.overlay.broker.message_cache import size_of
from newsstand.overlay.broker.requests import Gather, GatherLimits, ScatterGather
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import (
    CacheRequest,
    CacheResponse,
    Name,
    Publication,
    Subscribe,
    batch_of,
    decode_batch,
    encode,
)
from newsstand.overlay.simulation import OverlayNetwork
from newsstand.overlay.topology import Topology

STORMS = Filter.of_topic("storms")
POLICY = OpportunisticPolicy.parse("sel-sub-prt")


def storms(*numbers: int) -> list[Publication]:
    return [Publication("b", number, "storms", {}, b"x" * 1000, at_ms=number) for number in numbers]


SIZE = size_of(*storms(1))


LIMITS = GatherLimits()


def gathering(number: int, client: str, limit: int = 1_000_000) -> Gather:
    return Gather(CacheRequest(number, STORMS, ("a",)), None, client, limit, {"b": None})


def test_gathers_bounded_in_number_by_largest_holder() -> None:
    gatherings = ScatterGather(GatherLimits(open=4, open_bytes=100 * SIZE))
    started = [("ann", 1), ("eve", 2), ("eve", 3), ("bob", 4), ("eve", 5), ("eve", 6)]
    over = [[one.key[1] for one in gatherings.begin(gathering(number, client))] for client, number in started]
    assert over == [[], [], [], [], [2], [3]]
    assert [number for _, number in started if ("a", number) in gatherings] == [1, 4, 5, 6]


def test_gathers_bounded_in_bytes_by_largest_holder() -> None:
    gatherings = ScatterGather(GatherLimits(open=9, open_bytes=6 * SIZE))
    for client, number in (("ann", 1), ("eve", 2), ("eve", 3), ("eve", 4)):
        assert gatherings.begin(gathering(number, client)) == []
    assert gatherings.receive(("a", 1), "b", storms(1, 2), last=False) == []
    assert gatherings.receive(("a", 3), "b", storms(1, 2), last=False) == []
    [over] = gatherings.receive(("a", 4), "b", storms(1, 2, 3), last=False) or []
    assert (over.key[1], over.client, len(over.found), over.complete) == (3, "eve", 2, False)
    assert len(gatherings) == 3


def test_gather_deduplicates_and_is_incomplete_when_cut() -> None:
    one = gathering(1, "ann", 4 * SIZE)
    for _ in range(2):
        one.add(storms(1, 2, 3))
        assert (one.bytes, one.publications, one.complete) == (3 * SIZE, storms(1, 2, 3), True)
    one.add(storms(4, 5))
    assert (one.bytes, one.publications, one.complete) == (4 * SIZE, storms(2, 3, 4, 5), False)


def caching(name: Name, *neighbours: Name, limits: GatherLimits = LIMITS) -> CachingBroker:
    broker = CachingBroker(name, limits=limits)
    broker.configure_cache(POLICY, 1000)
    for neighbour in neighbours:
        broker.link_up(neighbour)
        broker.receive(neighbour, Subscribe(STORMS))
    return broker


def sent(outs: list[Effect], neighbour: Name) -> list[CacheResponse]:
    return [
        one.message
        for one in outs
        if isinstance(one, Send) and one.neighbour == neighbour and isinstance(one.message, CacheResponse)
    ]


def test_gathers_of_other_clients_survive() -> None:
    broker = caching("b", "a", limits=GatherLimits(open_bytes=6 * SIZE))
    broker.subscribe("bob", STORMS)
    for number in range(2):
        broker.publish("storms", {}, b"x" * 1000, at_ms=number)
    asked, _ = broker.request_cached("ann", STORMS)
    ended = [
        (one.client, one.number, one.complete)
        for _ in range(5)
        for one in broker.request_cached("eve", STORMS)[1]
        if isinstance(one, RequestAnswer)
    ]
    assert [client for client, _, _ in ended] == ["eve"] * 3
    assert not any(complete for _, _, complete in ended)
    assert ("b", asked) in broker.gathers


def test_gather_passes_results_on_at_once() -> None:
    broker = caching("m", "up", "left", "right")
    broker.subscribe("bob", STORMS)
    broker.publish("storms", at_ms=5)
    outs = broker.receive("up", CacheRequest(1, STORMS, ("up",)))
    [own] = sent(outs, "up")
    assert ([one.at_ms for one in own.publications], own.last) == ([5], False)
    [passed] = sent(broker.receive("left", CacheResponse("up", 1, tuple(storms(1, 2)))), "up")
    assert (list(passed.publications), passed.last) == (storms(1, 2), False)
    assert broker.receive("right", CacheResponse("up", 1, tuple(storms(2)), last=False)) == []
    [last] = sent(broker.receive("right", CacheResponse("up", 1, tuple(storms(2, 3)))), "up")
    assert (list(last.publications), last.last, last.complete) == (storms(3), True, True)


def test_gather_sends_at_most_twice_the_limit() -> None:
    broker = caching("m", "up", "left", limits=GatherLimits(answer_bytes=4 * SIZE))
    broker.receive("up", CacheRequest(1, STORMS, ("up",)))
    outs: list[Effect] = []
    for first in range(1, 40, 3):
        part = tuple(storms(first, first + 1, first + 2))
        outs += broker.receive("left", CacheResponse("up", 1, part, last=first == 37))
    responses = sent(outs, "up")
    assert [one.number for response in responses for one in response.publications] == [1, 2, 3, 36, 37, 38, 39]
    assert [(one.last, one.complete) for one in responses] == [(False, True), (True, False)]


@pytest.mark.parametrize(
    "lose",
    [
        lambda broker: broker.link_down("left"),
        lambda broker: broker.stop_gather(("up", 1)),
        lambda broker: broker.receive("left", CacheResponse("up", 1, complete=False)),
    ],
)
def test_gather_incomplete_without_all_answers(lose: Callable[[CachingBroker], list[Effect]]) -> None:
    broker = caching("m", "up", "left")
    broker.receive("up", CacheRequest(1, STORMS, ("up",)))
    assert sent(lose(broker), "up") == [CacheResponse("up", 1, complete=False)]
    assert len(broker.gathers) == 0


def test_cache_responses_of_older_brokers_count_as_complete() -> None:
    response = CacheResponse("a", 1, tuple(storms(1)), True, False)
    assert decode_batch(batch_of([encode(response)])) == [response]
    before = encode(response)[:1].replace(b"\x96", b"\x95") + encode(response)[1:-1]
    assert decode_batch(batch_of([before])) == [CacheResponse("a", 1, tuple(storms(1)))]


def test_unrequested_publications_dropped() -> None:
    broker = caching("m", "left")
    number, _ = broker.request_cached("ann", STORMS, after=storms(2)[0].position)
    fire = Publication("b", 9, "fires", at_ms=9)
    [answer] = broker.receive("left", CacheResponse("m", number, (*storms(1, 2, 3), fire)))
    assert isinstance(answer, RequestAnswer)
    assert list(answer.publications) == storms(3)
    assert broker.dropped == Counter({"not requested": 3})


def test_cached_read_continues_after_position_over_four_brokers() -> None:
    network = OverlayNetwork.of(Topology(4, ((1, 2), (2, 3), (3, 4))), None, caching)
    asker = network.brokers[1]
    assert isinstance(asker, CachingBroker)

    def act(name: int, action: Callable[[CachingBroker], list[Effect]]) -> None:
        network.act(name, action)  # type: ignore[arg-type]
        network.run()

    for name in (2, 3, 4):
        act(name, lambda broker: broker.subscribe("bob", Filter.parse(f"topic = 'storms' and at = {broker.name}")))
    for at_ms in range(9):
        act(1, lambda broker, at_ms=at_ms: broker.publish("storms", {"at": 2 + at_ms % 3}, at_ms=at_ms))
    assert [len(network.brokers[name].cache) for name in (1, 2, 3, 4)] == [0, 3, 3, 3]  # type: ignore[attr-defined]
    found: list[int] = []
    after = None
    for _ in range(3):
        number, outs = asker.request_cached("ann", STORMS, after=after)
        act(1, lambda _, outs=outs: outs)
        [answer] = [
            one.effect
            for one in network.effects
            if isinstance(one.effect, RequestAnswer) and one.effect.number == number
        ]
        assert answer.complete
        assert len(answer.publications) == 9 - len(found)
        found += [one.at_ms for one in answer.publications[:4]]
        after = answer.publications[:4][-1].position
    assert found == list(range(9))
