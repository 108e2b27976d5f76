"""Brokers with opportunistic caches: the paper's example, its rules against an oracle, and failures."""

from __future__ import annotations

import doctest
import importlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.overlay.world import FILTERS, PUBLICATIONS, held, trees
from support.profiles import examples
from support.survival.settings import OPPORTUNISTIC_POLICIES

from newsstand.model import OpportunisticPolicy
from newsstand.overlay.broker.caching import CachingBroker
from newsstand.overlay.broker.effects import Deliver, Effect, RequestAnswer, Send
from newsstand.overlay.broker.message_cache import ATTRIBUTE_BYTES, LARGEST_SHARE, MessageCache, newest, size_of
from newsstand.overlay.broker.requests import GatherLimits
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.filters.syntax import parse
from newsstand.overlay.messages import MOST_HOPS, CacheRequest, CacheResponse, Name, Publication, PublicationId
from newsstand.overlay.simulation import OverlayNetwork
from newsstand.overlay.topology import Topology

STORMS = Filter.of_topic("storms")
STORM = Publication("b", 1, "storms")


@pytest.mark.parametrize("module", ["broker.message_cache", "broker.caching"])
def test_examples_in_the_code_are_right(module: str) -> None:
    assert doctest.testmod(importlib.import_module(f"newsstand.overlay.{module}")).failed == 0


LIMITS = GatherLimits()


class Caches:
    """A network of caching brokers in which all messages arrive before the next event."""

    def __init__(
        self,
        topology: Topology,
        policy: str,
        slots: int,
        order: Random | None = None,
        limits: GatherLimits = LIMITS,
    ) -> None:
        self.limits = limits
        self.policy, self.slots = OpportunisticPolicy.parse(policy), slots
        self.network = OverlayNetwork.of(topology, order, self._made)

    def _made(self, name: Name) -> CachingBroker:
        broker = CachingBroker(name, limits=self.limits)
        broker.configure_cache(self.policy, self.slots)
        return broker

    def broker(self, name: int) -> CachingBroker:
        broker = self.network.brokers[name]
        assert isinstance(broker, CachingBroker)
        return broker

    def act(self, name: int, action: Callable[[CachingBroker], list[Effect]]) -> None:
        self.network.act(name, lambda _: action(self.broker(name)))
        self.network.run()

    def subscribe(self, name: int, client: str, wanted: Filter = STORMS) -> None:
        self.act(name, lambda broker: broker.subscribe(client, wanted))

    def leave(self, name: int, client: str) -> None:
        self.act(name, lambda broker: broker.remove_client(client))

    def publish(self, name: int, topic: str = "storms", at_ms: int = 0, body: bytes = b"") -> PublicationId:
        publication = self.broker(name).compose(topic, body=body, at_ms=at_ms)
        self.act(name, lambda broker: broker.send(publication))
        return publication.id

    def ask(self, name: int, client: str, wanted: Filter = STORMS) -> list[PublicationId]:
        """Return the publications of one request, which has one answer."""
        number, outs = self.broker(name).request_cached(client, wanted)
        self.act(name, lambda _: outs)
        [answer] = self.answers(name, number)
        assert answer.finished
        assert answer.client == client
        return [one.id for one in answer.publications]

    def answers(self, name: int, number: int) -> list[RequestAnswer]:
        outs = [one.effect for one in self.network.effects if one.broker == name]
        return [out for out in outs if isinstance(out, RequestAnswer) and out.number == number]

    def cached(self) -> dict[int, list[PublicationId]]:
        names = sorted(map(int, self.network.brokers))
        return {name: list(self.broker(name).cache) for name in names}


A, B, C, D, G = 1, 2, 3, 4, 5
FIGURE_1 = Topology(5, ((A, B), (B, C), (C, D), (C, G)))
"""Brokers a, b, c, d and g; publications of b reach d and g by c, and a is on the other side."""


def figure_1(policy: str) -> tuple[Caches, PublicationId]:
    """Return the network before the new client arrives at a: d and g cache m, and only g has a subscriber."""
    caches = Caches(FIGURE_1, policy, slots=4)
    caches.subscribe(D, "dora")
    caches.subscribe(G, "gus")
    published = caches.publish(B)
    caches.leave(D, "dora")
    return caches, published


def test_example_of_figure_1() -> None:
    caches, published = figure_1("sel-sub-prt")
    assert caches.cached() == {A: [], B: [], C: [], D: [published], G: [published]}

    caches.subscribe(A, "ann")
    assert caches.ask(A, "ann") == [published]
    assert caches.cached() == {A: [published], B: [], C: [], D: [published], G: [published]}
    asked = {way for way, crossed in caches.network.traffic.items() if crossed["CacheRequest"]}
    assert asked == {(A, B), (B, C), (C, G)}


def test_cached_message_lost_without_interested_clients() -> None:
    for policy, found in (("sel-sub-prt", False), ("sel-fld-prt", True)):
        caches, published = figure_1(policy)
        caches.leave(G, "gus")
        caches.subscribe(A, "ann")
        assert caches.ask(A, "ann") == ([published] if found else [])


def test_intermediate_broker_answers_if_its_client_subscribes() -> None:
    for policy, found in (("sel-sub-nop", False), ("sel-fld-nop", True)):
        caches = line_of(3, policy)
        caches.subscribe(2, "bob")
        published = caches.publish(1)
        caches.leave(2, "bob")
        caches.subscribe(3, "cleo")
        assert caches.cached() == {1: [], 2: [published], 3: []}
        assert caches.ask(1, "ann") == ([published] if found else [])
        caches.subscribe(2, "bea", Filter.parse("topic = 'storms' and severity > 3"))
        assert caches.ask(1, "ann") == ([published] if found else [])
        caches.subscribe(2, "bob")
        assert caches.ask(1, "ann") == [published]


def test_publications_cached_everywhere_under_all() -> None:
    caches = Caches(FIGURE_1, "all-fld-nop", slots=1)
    first = caches.publish(B)
    assert caches.cached() == {name: [first] for name in (A, B, C, D, G)}
    second = caches.publish(D)
    assert caches.cached() == {name: [second] for name in (A, B, C, D, G)}
    assert not [one for one in caches.network.effects if isinstance(one.effect, Deliver)]
    caches.act(A, lambda broker: broker.become_storage(["fires"]))
    before = caches.network.messages_sent("Publish")
    caches.publish(B, "fires")
    assert caches.network.messages_sent("Publish") == before + 1, "what is stored goes where it is wanted"


@dataclass
class Rules:
    """The rules of section 2.3 on plain lists, each a cache from top to bottom, with instant messages."""

    policy: OpportunisticPolicy
    slots: int
    brokers: int
    caches: dict[int, list[Publication]] = field(default_factory=dict)
    clients: dict[int, dict[str, list[Filter]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.caches = {name: [] for name in range(1, self.brokers + 1)}
        self.clients = {name: {} for name in self.caches}

    def interested(self, name: int, message: Publication) -> int:
        """Return X_i of a message."""
        of_clients = self.clients[name].values()
        return sum(any(wanted.matches(message) for wanted in filters) for filters in of_clients)

    def place(self, name: int, message: Publication) -> None:
        self.caches[name] = [message, *self.caches[name]][: self.slots]

    def publish(self, message: Publication) -> None:
        for name in self.caches:
            if self.policy.caching == "all" or self.interested(name, message):
                self.place(name, message)

    def arrive(self, name: int, client: str, wanted: Filter) -> list[PublicationId]:
        """Subscribe a new or a known client and request the cached messages; return them."""
        filters = self.clients[name].setdefault(client, [])
        cache = self.caches[name]
        new = [m for m in cache if wanted.matches(m) and not any(old.matches(m) for old in filters)]
        filters += [wanted] if wanted not in filters else []
        if self.policy.priority == "prt":
            cache = self.caches[name] = new + [m for m in cache if m not in new]
        had = [m for m in cache if wanted.matches(m)]
        others = [
            message
            for other, messages in self.caches.items()
            for message in messages
            if other != name and (self.policy.request == "fld" or self.interested(other, message))
        ]
        found = {m.position: m for m in others if wanted.matches(m) and m not in had}
        for _, message in sorted(found.items()):
            self.place(name, message)
        return [m.id for m in sorted([*had, *found.values()], key=lambda m: m.position)]

    def leave(self, name: int, client: str, wanted: Filter | None = None) -> None:
        """Remove a client, or one of its filters."""
        before = [m for m in self.caches[name] if self.interested(name, m)]
        if wanted is None:
            self.clients[name].pop(client, None)
        elif wanted in self.clients[name].get(client, []):
            self.clients[name][client].remove(wanted)
        if self.policy.priority == "prt":
            alone = [m for m in before if not self.interested(name, m)]
            self.caches[name] = [m for m in self.caches[name] if m not in alone] + alone


Deed = tuple[str, int, int, int]
DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "arrive", "arrive", "leave", "unsubscribe"]),
        st.integers(0, 99),
        st.integers(0, 99),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=40,
)


@pytest.mark.parametrize("policy", OPPORTUNISTIC_POLICIES, ids=str)
@settings(max_examples=examples(60))
@given(topology=trees(8), slots=st.integers(1, 4), deeds=DEEDS, seed=st.integers(0, 9))
def test_cache_follows_the_rules_after_every_event(
    policy: OpportunisticPolicy, topology: Topology, slots: int, deeds: list[Deed], seed: int
) -> None:
    caches = Caches(topology, str(policy), slots, Random(seed))
    rules = Rules(policy, slots, topology.nodes)
    for at_ms, (kind, place, what, number) in enumerate(deeds):
        name, client, wanted = place % topology.nodes + 1, f"client {number}", FILTERS[what % len(FILTERS)]
        if kind == "publish":
            topic, attributes = PUBLICATIONS[what % len(PUBLICATIONS)]
            # Two of one moment are distinguished by their origin.
            message = caches.broker(name).compose(topic, attributes, at_ms=at_ms // 2)
            caches.act(name, lambda broker, message=message: broker.send(message))
            rules.publish(message)
        elif kind == "arrive":
            caches.subscribe(name, client, wanted)
            assert caches.ask(name, client, wanted) == rules.arrive(name, client, wanted)
        elif kind == "leave":
            caches.leave(name, client)
            rules.leave(name, client)
        else:
            filters = rules.clients[name].get(client, [])
            wanted = filters[what % len(filters)] if filters else wanted
            caches.act(name, lambda broker, c=client, w=wanted: broker.unsubscribe(c, w))
            rules.leave(name, client, wanted)
        expected = {name: [m.id for m in messages] for name, messages in rules.caches.items()}
        assert caches.cached() == expected
    assert all(len(caches.broker(int(name)).gathers) == 0 for name in caches.network.brokers)


def test_clients_reorder_the_cache_and_storages_do_not() -> None:
    caches = Caches(Topology(1, ()), "sel-sub-prt", slots=3)
    caches.subscribe(1, "ann", Filter.parse("true"))
    storm, fire = caches.publish(1, "storms"), caches.publish(1, "fires")
    caches.act(1, lambda broker: broker.start_storing("storms"))
    assert caches.cached()[1] == [fire, storm]
    caches.subscribe(1, "bob")
    assert caches.cached()[1] == [storm, fire]
    caches.leave(1, "ann")
    caches.subscribe(1, "cleo", Filter.of_topic("fires"))
    caches.leave(1, "bob")
    assert caches.cached()[1] == [fire, storm]
    caches.act(1, lambda broker: broker.stop_storing("storms"))
    counted = {"cached": 2, "regenerated": 2, "degraded": 2}
    assert caches.broker(1).cache_events == Counter(counted)


def test_stored_topics_not_cached() -> None:
    caches = Caches(Topology(2, ((1, 2),)), "sel-sub-prt", slots=3)
    caches.act(2, lambda broker: broker.start_storing("fires"))
    caches.publish(1, "fires")
    assert caches.cached() == {1: [], 2: []}
    caches.act(2, lambda broker: broker.become_storage(["storms"]))
    caches.subscribe(1, "ann")
    caches.publish(1, "storms")
    assert caches.cached() == {1: [], 2: []}


def test_cached_topic_dropped_when_it_gets_a_storage() -> None:
    caches = line_of(3, "sel-sub-prt")
    for name in (1, 2, 3):
        caches.subscribe(name, "ann", Filter.parse("true"))
    caches.publish(1, "storms")
    fire = caches.publish(1, "fires")
    caches.publish(1, "storms")
    caches.act(2, lambda broker: broker.become_storage(["storms"]))
    assert caches.cached() == {1: [fire], 2: [fire], 3: [fire]}
    assert caches.broker(1).cache.bytes == size_of(Publication(1, 1, "fires"))
    caches.subscribe(1, "bob")
    assert caches.broker(1).cache_events["regenerated"] == 0
    caches.act(2, lambda broker: broker.become_storage([]))
    storm = caches.publish(1, "storms")
    assert caches.cached() == {1: [storm, fire], 2: [storm, fire], 3: [storm, fire]}


def test_resent_publication_not_cached_again() -> None:
    caches = Caches(Topology(2, ((1, 2),)), "sel-sub-nop", slots=2)
    caches.subscribe(2, "ann")
    first = caches.broker(1).compose("storms", at_ms=0)
    caches.act(1, lambda broker: broker.send(first))
    second = caches.publish(1)
    caches.act(1, lambda broker: broker.send(first, attempt=1))
    assert caches.cached()[2] == [second, first.id]
    third = caches.publish(1)
    caches.act(1, lambda broker: broker.send(first, attempt=2))
    assert caches.cached()[2] == [third, second]


def line_of(length: int, policy: str = "sel-fld-prt", limits: GatherLimits = LIMITS) -> Caches:
    return Caches(Topology(length, tuple((one, one + 1) for one in range(1, length))), policy, 100, limits=limits)


def test_link_down_counts_as_an_answer() -> None:
    caches = line_of(4)
    for name in (2, 4):
        caches.subscribe(name, "ann")
    published = caches.publish(2)
    caches.leave(2, "ann")
    number, outs = caches.broker(1).request_cached("bob", STORMS)
    caches.network.act(1, lambda _: outs)
    for _ in range(2):
        caches.network.step()  # the request is at 3 now, and 2 waits for it
    assert len(caches.broker(2).gathers) == 1
    assert not caches.answers(1, number)
    caches.network.unlink(2, 3)
    caches.network.run()
    [answer] = caches.answers(1, number)
    assert ([one.id for one in answer.publications], answer.complete) == ([published], False)
    assert all(len(caches.broker(name).gathers) == 0 for name in (1, 2, 3, 4))


def test_cached_request_given_up_returns_partial_answer() -> None:
    caches = line_of(3)
    caches.subscribe(3, "ann")
    caches.publish(1)
    number, outs = caches.broker(1).request_cached("bob", STORMS)
    caches.network.act(1, lambda _: outs)
    caches.network.act(1, lambda broker: broker.give_up(number))
    caches.network.run()
    assert caches.answers(1, number) == [RequestAnswer("bob", number, finished=True, complete=False)]
    assert caches.broker(1).dropped["response too late"] == 1


def test_removed_client_gets_no_answer() -> None:
    caches = line_of(2)
    number, outs = caches.broker(1).request_cached("bob", STORMS)
    caches.network.act(1, lambda _: outs)
    caches.leave(1, "bob")
    assert caches.answers(1, number) == []
    assert len(caches.broker(1).gathers) == 0


def test_broker_without_slots_forwards_requests() -> None:
    caches = line_of(3)
    caches.subscribe(3, "ann")
    published = caches.publish(1)
    caches.broker(2).configure_cache(caches.policy, 0)
    caches.subscribe(1, "bob")
    assert caches.ask(1, "bob") == [published]
    assert caches.cached() == {1: [published], 2: [], 3: [published]}


def test_cache_evicts_bottom_when_slots_shrink() -> None:
    caches = line_of(1, "all-fld-nop")
    published = [caches.publish(1) for _ in range(5)]
    caches.broker(1).configure_cache(caches.policy, 2)
    assert caches.cached()[1] == [published[4], published[3]]
    caches.broker(1).configure_cache(caches.policy, 3)
    assert caches.cached()[1] == [published[4], published[3]]


def test_answer_holds_newest_publications_in_small_responses() -> None:
    body = b"x" * 1000
    size = size_of(Publication(1, 1, "storms", {}, body))
    caches = line_of(3, limits=GatherLimits(answer_bytes=80 * size + 10, batch=16))
    caches.subscribe(3, "ann")
    published = [caches.publish(1, at_ms=at_ms, body=body) for at_ms in range(90)]
    assert caches.ask(1, "bob") == published[10:]
    assert caches.network.traffic[2, 1]["CacheResponse"] == 5


def test_cached_read_continues_after_position() -> None:
    caches = line_of(2)
    caches.subscribe(2, "ann")
    published = [caches.publish(1, at_ms=at_ms) for at_ms in range(6)]
    number, outs = caches.broker(1).request_cached("bob", STORMS, after=(2, 1, published[2][1]))
    caches.act(1, lambda _: outs)
    [answer] = caches.answers(1, number)
    assert [one.id for one in answer.publications] == published[3:]


def test_cache_requests_stop_at_loops_and_hop_limit() -> None:
    broker = CachingBroker("a")
    broker.link_up("b")
    broker.link_up("c")
    ring = CacheRequest(1, STORMS, ("z", "a", "b"), True)
    assert broker.receive("b", ring) == [Send("b", CacheResponse("z", 1))]
    far = CacheRequest(2, STORMS, tuple(f"b{number}" for number in range(MOST_HOPS - 1)), True)
    assert broker.receive("b", far) == [Send("b", CacheResponse("b0", 2, complete=False))]
    once = CacheRequest(3, STORMS, ("b",), True)
    [onward] = broker.receive("b", once)
    assert onward == Send("c", CacheRequest(3, STORMS, ("b", "a"), True))
    assert broker.receive("c", once) == [Send("c", CacheResponse("b", 3))]
    assert broker.receive("stranger", once) == []
    assert broker.dropped == Counter({"routing loop": 2, "from an unknown neighbour": 1})


def test_request_without_subscription_leaves_cache_unchanged() -> None:
    caches = Caches(Topology(2, ((1, 2),)), "sel-sub-prt", slots=3)
    caches.subscribe(1, "ann", Filter.of_topic("fires"))
    caches.subscribe(2, "bob")
    fires = [caches.publish(1, "fires", at_ms) for at_ms in range(3)]
    storms = [caches.publish(2, "storms", at_ms, b"x" * at_ms) for at_ms in range(3)]
    assert caches.ask(1, "eve") == storms, "it gets them all the same"
    assert caches.cached()[1] == fires[::-1]
    assert caches.broker(1).cache_events["copied"] == 0
    caches.subscribe(1, "eve")
    assert caches.ask(1, "eve") == storms
    assert caches.cached()[1] == storms[::-1]


def test_answers_copied_only_if_subscribed() -> None:
    caches = line_of(2)
    caches.subscribe(2, "bob")
    caches.subscribe(1, "eve", Filter.parse("severity > 2"))
    for severity in range(5):
        caches.act(2, lambda broker, severity=severity: broker.publish("storms", {"severity": severity}, at_ms=1))
    caches.broker(1).configure_cache(caches.policy, 0)
    caches.broker(1).configure_cache(caches.policy, 5)
    published = list(caches.broker(2).cache)[::-1]
    assert caches.ask(1, "eve") == published
    assert caches.cached()[1] == published[:2:-1]


def test_publication_too_large_for_an_answer_not_cached() -> None:
    caches = line_of(1, "all-fld-nop", limits=GatherLimits(answer_bytes=size_of(STORM) + 10))
    fits = caches.publish(1, body=b"x" * 10)
    caches.publish(1, body=b"x" * 11)
    assert caches.cached()[1] == [fits]


class Counting:
    """Counts comparisons of filters with messages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._calls = 0

    def filter(self, text: str) -> Filter:
        wanted = Filter(parse(text))
        matches = wanted.matches

        def counted(message: Publication) -> bool:
            self._calls += 1
            return matches(message)

        self._monkeypatch.setattr(wanted, "matches", counted)
        return wanted

    def calls(self) -> int:
        """Return the comparisons since the last call."""
        calls, self._calls = self._calls, 0
        return calls


def test_filter_and_cached_message_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(monkeypatch)
    broker = CachingBroker("b")
    broker.configure_cache(OpportunisticPolicy(), 30)
    broker.link_up("a")
    broker.subscribe("ann", STORMS)
    for number in range(30):
        broker.publish("storms", {"place": number}, at_ms=number)
    for number in range(40):
        broker.subscribe(f"client {number}", counting.filter(f"topic = 'storms' and place = {100 + number}"))
        broker.subscribe("eve", counting.filter(f"topic = 'storms' and place != {number}"))
    assert counting.calls() == 2 * 40 * 30
    same = counting.filter("topic = 'storms' and place = 100")
    broker.subscribe("eve", same)
    broker.unsubscribe("eve", same)
    broker.remove_client("ann")
    request = CacheRequest(1, STORMS, ("a",))
    [response] = broker.receive("a", request)
    assert isinstance(response, Send)
    assert isinstance(response.message, CacheResponse)
    assert len(response.message.publications) == 30, "eve wants all of them"
    broker.remove_client("eve")
    assert broker.cache_events["degraded"] == 30
    broker.configure_cache(OpportunisticPolicy(), 20)
    assert counting.calls() == 0
    assert broker.receive("a", CacheRequest(2, STORMS, ("a",))) == [Send("a", CacheResponse("a", 2))]
    broker.subscribe("ann", counting.filter("topic = 'storms'"))
    assert counting.calls() == 20


LINK_DEEDS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 99)))


@settings(max_examples=examples(30))
@given(topology=trees(7), seed=st.integers(0, 99), deeds=LINK_DEEDS)
def test_request_answered_once_whatever_links_do(
    topology: Topology, seed: int, deeds: list[tuple[int, int]]
) -> None:
    order = Random(seed)
    caches = Caches(topology, "sel-fld-prt", 3, order)
    asked: list[tuple[int, int]] = []
    for kind, place in deeds:
        names = sorted(map(int, caches.network.brokers))
        name = names[place % len(names)]
        links = caches.network.links()
        if kind <= 1:
            number, outs = caches.broker(name).request_cached("ann", STORMS)
            caches.network.act(name, lambda _, outs=outs: outs)
            asked.append((name, number))
        elif kind == 2:
            caches.network.act(name, lambda broker: broker.publish("storms", at_ms=0))
        elif kind == 3:
            caches.network.act(name, lambda broker: broker.subscribe("bob", STORMS))
        elif kind == 4 and links:
            caches.network.unlink(*links[place % len(links)])
        elif kind == 5 and links:
            one, other = links[place % len(links)]
            caches.network.unlink(one, other)
            caches.network.link(one, other)
        for _ in range(order.randrange(4)):
            caches.network.step()
    caches.network.run()
    given_answers = [
        (one.broker, one.effect) for one in caches.network.effects if isinstance(one.effect, RequestAnswer)
    ]
    assert Counter((name, answer.number) for name, answer in given_answers) == Counter(asked)
    for _, answer in given_answers:
        ids = [one.id for one in answer.publications]
        assert len(set(ids)) == len(ids)
    assert all(len(caches.broker(int(name)).gathers) == 0 for name in caches.network.brokers)


@given(st.lists(st.integers(0, 3000), max_size=30), st.integers(1, 10), st.integers(1000, 60_000))
def test_cache_never_exceeds_bytes_or_slots(sizes: list[int], slots: int, most_bytes: int) -> None:
    cache = MessageCache(slots, most_bytes)
    expected: list[Publication] = []
    for number, size in enumerate(sizes):
        one = Publication("b", number, f"topic {number % 3}", {"text": "t"}, b"x" * size)
        fits = size_of(one) <= most_bytes // LARGEST_SHARE
        assert cache.put(one) is fits
        expected = [one, *expected][:slots] if fits else expected
        while sum(map(size_of, expected)) > most_bytes:
            expected.pop()
        assert list(cache) == [one.id for one in expected]
        assert cache.bytes == sum(map(size_of, expected))
        found = cache.matching(Filter.parse("topic in ('topic 1', 'topic 7') and text = 't'"))
        assert found == [one for one in reversed(expected) if one.topic == "topic 1"]
    for one in list(expected):
        assert not cache.put(one)
    cache.resize(2)
    assert list(cache) == [one.id for one in expected[:2]]
    assert cache.bytes == sum(map(size_of, expected[:2]))
    assert held(cache._of_topic) == held({one.topic: {} for one in expected[:2]}) + sum(
        held({one.id: one}) for one in expected[:2]
    )


@given(st.lists(st.integers(0, 50), max_size=8, unique=True), st.integers(0, 5))
def test_newest_returns_in_order(times: list[int], room: int) -> None:
    all_of_them = [Publication("b", number, "storms", {}, b"", at_ms) for number, at_ms in enumerate(times)]
    chosen = newest(all_of_them, room * size_of(STORM))
    assert [one.at_ms for one in chosen] == sorted(sorted(times, reverse=True)[:room])


def test_newest_has_no_gaps() -> None:
    sizes = (100, 900, 300)
    storms = [Publication("b", at_ms, "storms", {}, b"x" * size, at_ms) for at_ms, size in enumerate(sizes)]
    room = size_of(storms[0]) + size_of(storms[2])
    assert newest(storms, room) == storms[2:]
    assert newest(storms, room + size_of(storms[1])) == storms


def test_size_counts_all_attributes() -> None:
    bare = size_of(Publication("b", 1, "storms"))
    numbers = Publication("b", 1, "storms", {f"n{number}": number + 0.5 for number in range(10)})
    assert size_of(numbers) == bare + 10 * (ATTRIBUTE_BYTES + 2)
    texts = Publication("b", 1, "Stürme", {"où": "çà", "safe": True}, b"abc")
    assert size_of(texts) == bare + 1 + 2 * ATTRIBUTE_BYTES + 3 + 4 + 4 + 3
