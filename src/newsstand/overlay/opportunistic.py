"""A broker of the overlay that caches what passes, for clients that come later (Sourlas et al. 2011, section 2).

What nobody stores may yet be found: where clients want it, brokers keep it in k slots as long as there is room. A
client's request goes along the tree, each broker answers for itself and for those beyond it, and the client's own
broker keeps a copy of what comes and is subscribed to.

>>> a, b = CachingBroker("a"), CachingBroker("b")
>>> for broker in (a, b):
...     broker.cache_by(OpportunisticPolicy.parse("sel-sub-prt"), slots=10)
>>> a.link_up("b"), b.link_up("a")
([], [])
>>> storms = Filter.of_topic("storms")
>>> done = [a.receive("b", out.message) for out in b.subscribe("ann", storms)]
>>> done = [b.receive("a", out.message) for out in a.publish("storms", at_ms=1000)]
>>> list(a.cache), list(b.cache)
([], [('a', 1)])
>>> done = [b.receive("a", out.message) for out in a.subscribe("bob", storms)]
>>> number, [request] = a.request_cached("bob", storms)
>>> [response] = b.receive("a", request.message)
>>> [answer] = a.receive("b", response.message)
>>> answer.finished, [publication.at_ms for publication in answer.publications], list(a.cache)
(True, [1000], [('a', 1)])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from newsstand.model import (
    OPPORTUNISTIC_BYTES,
    CachingPolicy,
    OpportunisticPolicy,
    PriorityPolicy,
    RequestPolicy,
)
from newsstand.overlay.batches import batches
from newsstand.overlay.filters import Filter
from newsstand.overlay.gatherings import Gathering, Gatherings, Key
from newsstand.overlay.message_cache import MessageCache, weight
from newsstand.overlay.messages import (
    MOST_HOPS,
    Advertise,
    CacheRequest,
    CacheResponse,
    Message,
    Name,
    Path,
    Position,
    Publication,
    Publish,
)
from newsstand.overlay.node import STORAGE
from newsstand.overlay.open_requests import Answer
from newsstand.overlay.outcomes import Client, Out, Send
from newsstand.overlay.replication import ReplicatingBroker
from newsstand.overlay.storage import Storage

ANSWER_BYTES = 1024 * 1024
"""Of publications that one request gets."""
MOST_GATHERINGS = 1024
MOST_GATHERED = 64 * 1024 * 1024
"""Bytes that wait at this broker for the rest of answers."""
BATCH = 64
"""Publications in one response."""


class CachingBroker(ReplicatingBroker):
    """Without slots, as it begins, it caches nothing, and passes on what others ask."""

    def __init__(
        self,
        name: Name,
        storage: Storage | None = None,
        *,
        covering: bool = True,
        first_number: int = 1,
        remembered: int = 4096,
        cache_bytes: int = OPPORTUNISTIC_BYTES,
    ) -> None:
        """A broker without links; see `OverlayBroker`. Its cache has room for `cache_bytes`, if it gets slots."""
        super().__init__(name, storage, covering=covering, first_number=first_number, remembered=remembered)
        self.policy = OpportunisticPolicy()
        self.cache = MessageCache(0, cache_bytes)
        self.gatherings = Gatherings(MOST_GATHERINGS, MOST_GATHERED)
        self.cached: Counter[str] = Counter()
        """What has happened to publications in the cache, and how many requests clients have made."""

    def cache_by(self, policy: OpportunisticPolicy, slots: int) -> None:
        """Cache by this policy from now on, in so many slots."""
        self.policy = policy
        self.cache.resize(slots)

    # Clients

    def subscribe(self, client: Client, wanted: Filter) -> list[Out]:
        """A client wants what matches from now on; what is cached and new to it is regenerated."""
        if client is not STORAGE and not self.subscriptions.wants(client, wanted):
            self.cache.add_interest(wanted)
            if self._has_priority:
                found = self.cache.interest.beyond(wanted, self.subscriptions.of_client(client))
                self.cache.regenerate(found)
                self.cached["regenerated"] += len(found)
        return super().subscribe(client, wanted)

    def unsubscribe(self, client: Client, wanted: Filter) -> list[Out]:
        """A client no longer wants what matches; what nobody here wants any more is degraded."""
        if self.subscriptions.wants(client, wanted):
            self._left(client, [wanted])
        return super().unsubscribe(client, wanted)

    def client_gone(self, client: Client) -> list[Out]:
        self.gatherings.drop(client)
        self._left(client, self.subscriptions.of_client(client))
        return super().client_gone(client)

    def advertise(self, topics: Iterable[str]) -> list[Out]:
        out = super().advertise(topics)
        self._forget_stored(self.advertisements.own)
        return out

    def request_cached(
        self, client: Client, wanted: Filter, *, after: Position | None = None
    ) -> tuple[int, list[Out]]:
        """A client wants what caches have: the request's number, which its one answer has, and what is to be done.

        The answer is not `whole` if there was more, or if somebody may have had more and could not answer.
        """
        number, self._number = self._number, self._number + 1
        self.cached["requests"] += 1
        flooded = self.policy.request is RequestPolicy.FLOODED
        request = CacheRequest(number, wanted, (self.name,), flooded, after)
        return number, self._gather(request, None, client, self.cache.matching(wanted, after))

    def give_up(self, number: int) -> list[Out]:
        return super().give_up(number) + self.stop_gathering((self.name, number))

    def stop_gathering(self, key: Key) -> list[Out]:
        """Whoever waits for what is gathered, a client or a neighbour, gets what has come."""
        return self._answered(self.gatherings.give_up(key))

    # Neighbours

    def link_down(self, neighbour: Name) -> list[Out]:
        out = super().link_down(neighbour)
        return out + self._answered(self.gatherings.lose(neighbour))

    def receive(self, neighbour: Name, message: Message) -> list[Out]:
        if neighbour not in self.links:
            return super().receive(neighbour, message)
        match message:
            case CacheRequest():
                return self._search(message, neighbour)
            case CacheResponse():
                return self._hear(message, neighbour)
            case Advertise(topics):
                out = super().receive(neighbour, message)
                self._forget_stored(topics)
                return out
            case _:
                return super().receive(neighbour, message)

    def _search(self, request: CacheRequest, sender: Name) -> list[Out]:
        """Look for what a request of another broker's wants, here and beyond."""
        origin = request.path[0]
        if self.name in request.path or (origin, request.number) in self.gatherings:
            self.dropped["went in a ring"] += 1
            return [Send(sender, CacheResponse(origin, request.number))]
        found = self.cache.matching(request.filter, request.after)
        if not request.flooded:
            found = [one for one in found if self.cache.interest.is_wanted(one.id)]
        path: Path = (*request.path, self.name)
        onward = CacheRequest(request.number, request.filter, path, request.flooded, request.after)
        return self._gather(onward, sender, None, found)

    def _gather(
        self, request: CacheRequest, sender: Name | None, client: Client | None, found: Sequence[Publication]
    ) -> list[Out]:
        """Ask those beyond, and answer with what they and this broker have as soon as all have answered."""
        if request.flooded:
            asked = self._others(sender)
        else:
            asked = self.subscriptions.neighbours_near(request.filter, sender)
        is_far = len(request.path) >= MOST_HOPS
        waiting = {} if is_far else dict.fromkeys(asked)
        gathering = Gathering(request, sender, client, ANSWER_BYTES, waiting, whole=not (is_far and asked))
        gathering.add(found)
        out: list[Out] = [Send(neighbour, request) for neighbour in waiting]
        over = self.gatherings.begin(gathering)
        return out + self._tell_early(gathering.key) + self._answered(over)

    def _hear(self, response: CacheResponse, neighbour: Name) -> list[Out]:
        """A neighbour tells what it and those beyond it have; nothing else than what was asked for is taken."""
        key = response.origin, response.number
        gathering = self.gatherings.get(key)
        if gathering is None or neighbour not in gathering.waiting:
            return self._drop("response too late")
        wanted = [one for one in response.publications if gathering.wants(one)]
        self.dropped["not asked for"] += len(response.publications) - len(wanted)
        over = self.gatherings.receive(key, neighbour, wanted, response.last, response.whole)
        return self._tell_early(key) + self._answered(over or [])

    def _tell_early(self, key: Key) -> list[Out]:
        """Give a neighbour what has come for it, while others are waited for."""
        gathering = self.gatherings.get(key)
        if gathering is None or gathering.asked_by is None:
            return []
        origin, number = key
        fresh = gathering.pass_on()
        parts = batches(fresh, BATCH) if fresh else ()
        return [Send(gathering.asked_by, CacheResponse(origin, number, part, last=False)) for part in parts]

    def _answered(self, over: Iterable[Gathering]) -> list[Out]:
        """Answer those who wait for gatherings that are over."""
        out: list[Out] = []
        for gathering in over:
            origin, number = gathering.key
            if gathering.asked_by is None:
                found = gathering.publications
                self._copy(found)
                out.append(Answer(gathering.client, number, tuple(found), finished=True, whole=gathering.whole))
                continue
            *parts, last = batches(gathering.rest, BATCH)
            out += [Send(gathering.asked_by, CacheResponse(origin, number, part, last=False)) for part in parts]
            out.append(Send(gathering.asked_by, CacheResponse(origin, number, last, whole=gathering.whole)))
        return out

    # The cache

    @property
    def _has_priority(self) -> bool:
        return self.policy.priority is PriorityPolicy.PRIORITY

    def _crossed(self, publication: Publication, clients: Sequence[Client]) -> None:
        if self.policy.caching is CachingPolicy.ALL or any(client is not STORAGE for client in clients):
            self.cached["cached"] += self._put(publication)

    def _onward(self, message: Publish, sender: Name | None) -> list[Name]:
        everywhere = self.cache.slots and self.policy.caching is CachingPolicy.ALL and not message.late
        if everywhere and not self._is_stored(message.publication.topic):
            return self._others(sender)
        return super()._onward(message, sender)

    def _copy(self, found: Iterable[Publication]) -> None:
        """Keep what came for a client, is not here and is subscribed to here, the newest at the top."""
        # Chosen before any is put: what these drive out must not come back.
        for publication in [one for one in found if one.id not in self.cache]:
            self.cached["copied"] += self._put(publication, unwanted=False)

    def _put(self, publication: Publication, *, unwanted: bool = True) -> bool:
        """Cache a publication, unless a storage has it or it fits into no answer: nobody would get it here."""
        if self._is_stored(publication.topic) or weight(publication) > ANSWER_BYTES:
            return False
        return self.cache.put(publication, unwanted=unwanted)

    def _is_stored(self, topic: str) -> bool:
        return self.advertisements.nearest(topic) is not None

    def _forget_stored(self, topics: Iterable[str]) -> None:
        """Storages of topics may have become known: what is cached of these only takes slots from now on."""
        for topic in filter(self._is_stored, topics):
            self.cache.forget(topic)

    def _left(self, client: Client, filters: Sequence[Filter]) -> None:
        """A client stops wanting what matches any of these."""
        if client is STORAGE:
            return
        alone = [one for wanted in filters for one in self.cache.interest.remove(wanted)]
        if self._has_priority:
            self.cache.degrade(alone)
            self.cached["degraded"] += len(alone)
