"""What is gathered for a request: how much, for whom, whether it is the whole, and what a silent broker costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from newsstand.model import OpportunisticPolicy
from newsstand.overlay import opportunistic
from newsstand.overlay.filters import Filter
from newsstand.overlay.gatherings import Gathering, Gatherings
from newsstand.overlay.message_cache import weight
from newsstand.overlay.messages import CacheRequest, CacheResponse, Name, Publication, Subscribe, decode, encode
from newsstand.overlay.network import Network
from newsstand.overlay.open_requests import Answer
from newsstand.overlay.opportunistic import CachingBroker
from newsstand.overlay.outcomes import Out, Send
from newsstand.overlay.topology import Topology

STORMS = Filter.of_topic("storms")
POLICY = OpportunisticPolicy.parse("sel-sub-prt")


def storms(*numbers: int) -> list[Publication]:
    return [Publication("b", number, "storms", {}, b"x" * 1000, at_ms=number) for number in numbers]


SIZE = weight(*storms(1))


def gathering(number: int, client: str, limit: int = 1_000_000) -> Gathering:
    return Gathering(CacheRequest(number, STORMS, ("a",)), None, client, limit, {"b": None})


def test_the_number_of_gatherings_is_bounded_and_whoever_has_most_loses_its_oldest() -> None:
    gatherings = Gatherings(most=4, most_bytes=100 * SIZE)
    told = [("ann", 1), ("eve", 2), ("eve", 3), ("bob", 4), ("eve", 5), ("eve", 6)]
    over = [[one.key[1] for one in gatherings.begin(gathering(number, client))] for client, number in told]
    assert over == [[], [], [], [], [2], [3]]
    assert [number for _, number in told if ("a", number) in gatherings] == [1, 4, 5, 6]


def test_the_bytes_of_gatherings_are_bounded_and_whoever_holds_most_loses_its_oldest_with_bytes() -> None:
    gatherings = Gatherings(most=9, most_bytes=6 * SIZE)
    for client, number in (("ann", 1), ("eve", 2), ("eve", 3), ("eve", 4)):
        assert gatherings.begin(gathering(number, client)) == []
    assert gatherings.receive(("a", 1), "b", storms(1, 2), last=False) == []
    assert gatherings.receive(("a", 3), "b", storms(1, 2), last=False) == []
    [over] = gatherings.receive(("a", 4), "b", storms(1, 2, 3), last=False) or []
    assert (over.key[1], over.client, len(over.found), over.whole) == (3, "eve", 2, False)
    assert len(gatherings) == 3


def test_what_several_neighbours_have_counts_once_and_what_is_cut_is_not_whole() -> None:
    one = gathering(1, "ann", 4 * SIZE)
    for _ in range(2):
        one.add(storms(1, 2, 3))
        assert (one.bytes, one.publications, one.whole) == (3 * SIZE, storms(1, 2, 3), True)
    one.add(storms(4, 5))
    assert (one.bytes, one.publications, one.whole) == (4 * SIZE, storms(2, 3, 4, 5), False)


def caching(name: Name, *neighbours: Name) -> CachingBroker:
    broker = CachingBroker(name)
    broker.cache_by(POLICY, 1000)
    for neighbour in neighbours:
        broker.link_up(neighbour)
        broker.receive(neighbour, Subscribe(STORMS))
    return broker


def sent(outs: list[Out], neighbour: Name) -> list[CacheResponse]:
    return [
        one.message
        for one in outs
        if isinstance(one, Send) and one.neighbour == neighbour and isinstance(one.message, CacheResponse)
    ]


def test_one_client_does_not_end_what_is_gathered_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opportunistic, "MOST_GATHERED", 6 * SIZE)
    broker = caching("b", "a")
    broker.subscribe("bob", STORMS)
    for number in range(2):
        broker.publish("storms", {}, b"x" * 1000, at_ms=number)
    asked, _ = broker.request_cached("ann", STORMS)
    ended = [
        (one.client, one.number, one.whole)
        for _ in range(5)
        for one in broker.request_cached("eve", STORMS)[1]
        if isinstance(one, Answer)
    ]
    assert [client for client, _, _ in ended] == ["eve"] * 3
    assert not any(whole for _, _, whole in ended)
    assert ("b", asked) in broker.gatherings


def test_what_there_is_goes_up_at_once_and_each_message_once() -> None:
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
    assert (list(last.publications), last.last, last.whole) == (storms(3), True, True)


def test_who_waits_gets_at_most_twice_as_much_as_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opportunistic, "ANSWER_BYTES", 4 * SIZE)
    broker = caching("m", "up", "left")
    broker.receive("up", CacheRequest(1, STORMS, ("up",)))
    outs: list[Out] = []
    for first in range(1, 40, 3):
        part = tuple(storms(first, first + 1, first + 2))
        outs += broker.receive("left", CacheResponse("up", 1, part, last=first == 37))
    responses = sent(outs, "up")
    assert [one.number for response in responses for one in response.publications] == [1, 2, 3, 36, 37, 38, 39]
    assert [(one.last, one.whole) for one in responses] == [(False, True), (True, False)]


@pytest.mark.parametrize(
    "lose",
    [
        lambda broker: broker.link_down("left"),
        lambda broker: broker.stop_gathering(("up", 1)),
        lambda broker: broker.receive("left", CacheResponse("up", 1, whole=False)),
    ],
)
def test_what_lacks_somebodys_answer_is_not_whole(lose: Callable[[CachingBroker], list[Out]]) -> None:
    broker = caching("m", "up", "left")
    broker.receive("up", CacheRequest(1, STORMS, ("up",)))
    assert sent(lose(broker), "up") == [CacheResponse("up", 1, whole=False)]
    assert len(broker.gatherings) == 0


def test_responses_of_before_are_taken_for_whole() -> None:
    response = CacheResponse("a", 1, tuple(storms(1)), True, False)
    assert decode(encode(response)) == response
    before = encode(response)[:1].replace(b"\x96", b"\x95") + encode(response)[1:-1]
    assert decode(before) == CacheResponse("a", 1, tuple(storms(1)))


def test_what_was_not_asked_for_is_dropped() -> None:
    broker = caching("m", "left")
    number, _ = broker.request_cached("ann", STORMS, after=storms(2)[0].position)
    fire = Publication("b", 9, "fires", at_ms=9)
    [answer] = broker.receive("left", CacheResponse("m", number, (*storms(1, 2, 3), fire)))
    assert isinstance(answer, Answer)
    assert list(answer.publications) == storms(3)
    assert broker.dropped == Counter({"not asked for": 3})


def test_reading_goes_on_after_a_place_over_a_line_of_four() -> None:
    network = Network.of(Topology(4, ((1, 2), (2, 3), (3, 4))), None, caching)
    asker = network.brokers[1]
    assert isinstance(asker, CachingBroker)

    def act(name: int, action: Callable[[CachingBroker], list[Out]]) -> None:
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
        [answer] = [one.out for one in network.told if isinstance(one.out, Answer) and one.out.number == number]
        assert answer.whole
        assert len(answer.publications) == 9 - len(found)
        found += [one.at_ms for one in answer.publications[:4]]
        after = answer.publications[:4][-1].position
    assert found == list(range(9))
