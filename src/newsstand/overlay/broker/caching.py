"""A broker of the overlay that caches messages opportunistically (Sourlas et al. 2011, section 2).

Messages of topics without a storage stay in k slots of brokers whose clients subscribe to them. A request for
cached messages goes along the tree; each broker answers for itself and for those beyond it, and the client's
broker caches a copy of what arrives and is subscribed to.

>>> a, b = CachingBroker("a"), CachingBroker("b")
>>> for broker in (a, b):
...     broker.configure_cache(OpportunisticPolicy.parse("sel-sub-prt"), slots=10)
>>> a.link_up("b"), b.link_up("a")
([], [])
>>> storms = Filter.of_topic("storms")
>>> done = [a.receive("b", effect.message) for effect in b.subscribe("ann", storms)]
>>> done = [b.receive("a", effect.message) for effect in a.publish("storms", at_ms=1000)]
>>> list(a.cache), list(b.cache)
([], [('a', 1)])
>>> done = [b.receive("a", effect.message) for effect in a.subscribe("bob", storms)]
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
from newsstand.overlay.broker.broker import STORAGE
from newsstand.overlay.broker.effects import Client, Effect, RequestAnswer, Send
from newsstand.overlay.broker.message_cache import MessageCache, size_of
from newsstand.overlay.broker.replicating import ReplicatingBroker
from newsstand.overlay.broker.requests import Gather, GatherKey, GatherLimits, ScatterGather
from newsstand.overlay.broker.storage import Storage
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import (
    MOST_HOPS,
    Advertise,
    CacheRequest,
    CacheResponse,
    Message,
    MessagePosition,
    Name,
    Path,
    Publication,
    Publish,
    batches,
)


class CachingBroker(ReplicatingBroker):
    """A broker with a message cache; without slots, the default, it only forwards requests."""

    def __init__(
        self,
        name: Name,
        storage: Storage | None = None,
        *,
        first_number: int = 1,
        remembered: int = 4096,
        cache_bytes: int = OPPORTUNISTIC_BYTES,
        limits: GatherLimits = GatherLimits(),  # noqa: B008  it is frozen
    ) -> None:
        """Create a broker without links; see `OverlayBroker`. The cache holds up to `cache_bytes`."""
        super().__init__(name, storage, first_number=first_number, remembered=remembered)
        self.limits = limits
        self.policy = OpportunisticPolicy()
        self.cache = MessageCache(0, cache_bytes)
        self.gathers = ScatterGather(limits)
        self.cache_events: Counter[str] = Counter()
        """Events of cached publications, and requests of clients."""

    def configure_cache(self, policy: OpportunisticPolicy, slots: int) -> None:
        """Set the policy and the slots of the cache."""
        self.policy = policy
        self.cache.resize(slots)

    # Clients

    def subscribe(self, client: Client, wanted: Filter) -> list[Effect]:
        """Subscribe a client; cached publications that are new to it are regenerated."""
        if client is not STORAGE and not self.subscriptions.wants(client, wanted):
            self.cache.add_interest(wanted)
            if self._has_priority:
                found = self.cache.interest.only_matching(wanted, self.subscriptions.of_client(client))
                self.cache.regenerate(found)
                self.cache_events["regenerated"] += len(found)
        return super().subscribe(client, wanted)

    def unsubscribe(self, client: Client, wanted: Filter) -> list[Effect]:
        """Remove a subscription; cached publications that no client wants any more are degraded."""
        if self.subscriptions.wants(client, wanted):
            self._remove_interest(client, [wanted])
        return super().unsubscribe(client, wanted)

    def remove_client(self, client: Client) -> list[Effect]:
        self.gathers.drop(client)
        self._remove_interest(client, self.subscriptions.of_client(client))
        return super().remove_client(client)

    def advertise(self, topics: Iterable[str]) -> list[Effect]:
        effects = super().advertise(topics)
        self._forget_stored(self.advertisements.own)
        return effects

    def request_cached(
        self, client: Client, wanted: Filter, *, after: MessagePosition | None = None
    ) -> tuple[int, list[Effect]]:
        """Request cached publications for a client; return the number of the request, and effects.

        The one answer is not `complete` if there was more, or if a broker that may have more did not answer.
        """
        number, self._number = self._number, self._number + 1
        self.cache_events["requests"] += 1
        flooded = self.policy.request is RequestPolicy.FLOODED
        request = CacheRequest(number, wanted, (self.name,), flooded, after)
        return number, self._start_gather(request, None, client, self.cache.matching(wanted, after))

    def give_up(self, number: int) -> list[Effect]:
        return super().give_up(number) + self.stop_gather((self.name, number))

    def stop_gather(self, key: GatherKey) -> list[Effect]:
        """End a gather; its client or neighbour gets what has arrived."""
        return self._answered(self.gathers.give_up(key))

    # Neighbours

    def link_down(self, neighbour: Name) -> list[Effect]:
        effects = super().link_down(neighbour)
        return effects + self._answered(self.gathers.lose(neighbour))

    def receive(self, neighbour: Name, message: Message) -> list[Effect]:
        if neighbour not in self.links:
            return super().receive(neighbour, message)
        match message:
            case CacheRequest():
                return self._search(message, neighbour)
            case CacheResponse():
                return self._receive_response(message, neighbour)
            case Advertise(topics):
                effects = super().receive(neighbour, message)
                self._forget_stored(topics)
                return effects
            case _:
                return super().receive(neighbour, message)

    def _search(self, request: CacheRequest, sender: Name) -> list[Effect]:
        """Process a request of another broker, here and at the brokers beyond."""
        origin = request.path[0]
        if self.name in request.path or (origin, request.number) in self.gathers:
            self.dropped["routing loop"] += 1
            return [Send(sender, CacheResponse(origin, request.number))]
        found = self.cache.matching(request.filter, request.after)
        if not request.flooded:
            found = [one for one in found if self.cache.interest.is_wanted(one.id)]
        path: Path = (*request.path, self.name)
        onward = CacheRequest(request.number, request.filter, path, request.flooded, request.after)
        return self._start_gather(onward, sender, None, found)

    def _start_gather(
        self, request: CacheRequest, sender: Name | None, client: Client | None, found: Sequence[Publication]
    ) -> list[Effect]:
        """Forward a request, and answer it with what is found here and beyond as soon as all have answered."""
        if request.flooded:
            neighbours = self._others(sender)
        else:
            neighbours = self.subscriptions.neighbours_near(request.filter, sender)
        is_far = len(request.path) >= MOST_HOPS
        waiting = {} if is_far else dict.fromkeys(neighbours)
        gather = Gather(
            request, sender, client, self.limits.answer_bytes, waiting, complete=not (is_far and neighbours)
        )
        gather.add(found)
        effects: list[Effect] = [Send(neighbour, request) for neighbour in waiting]
        over = self.gathers.begin(gather)
        return effects + self._pass_on_early(gather.key) + self._answered(over)

    def _receive_response(self, response: CacheResponse, neighbour: Name) -> list[Effect]:
        """Add the answer of a neighbour for itself and those beyond; drop what was not requested."""
        key = response.origin, response.number
        gather = self.gathers.get(key)
        if gather is None or neighbour not in gather.waiting:
            return self._drop("response too late")
        wanted = [one for one in response.publications if gather.wants(one)]
        self.dropped["not requested"] += len(response.publications) - len(wanted)
        over = self.gathers.receive(key, neighbour, wanted, response.last, response.complete)
        return self._pass_on_early(key) + self._answered(over or [])

    def _pass_on_early(self, key: GatherKey) -> list[Effect]:
        """Send a neighbour what has arrived for it, before all have answered."""
        gather = self.gathers.get(key)
        if gather is None or gather.requester is None:
            return []
        origin, number = key
        fresh = gather.pass_on()
        parts = batches(fresh, self.limits.batch) if fresh else ()
        return [Send(gather.requester, CacheResponse(origin, number, part, last=False)) for part in parts]

    def _answered(self, over: Iterable[Gather]) -> list[Effect]:
        """Answer the requesters of gathers that have ended."""
        effects: list[Effect] = []
        for gather in over:
            origin, number = gather.key
            if gather.requester is None:
                found = gather.publications
                self._copy(found)
                effects.append(
                    RequestAnswer(gather.client, number, tuple(found), finished=True, complete=gather.complete)
                )
                continue
            *parts, last = batches(gather.rest, self.limits.batch)
            effects += [Send(gather.requester, CacheResponse(origin, number, part, last=False)) for part in parts]
            effects.append(Send(gather.requester, CacheResponse(origin, number, last, complete=gather.complete)))
        return effects

    # The cache

    @property
    def _has_priority(self) -> bool:
        return self.policy.priority is PriorityPolicy.PRIORITY

    def _on_forward(self, publication: Publication, clients: Sequence[Client]) -> None:
        if self.policy.caching is CachingPolicy.ALL or any(client is not STORAGE for client in clients):
            self.cache_events["cached"] += self._put(publication)

    def _next_hops(self, message: Publish, sender: Name | None) -> list[Name]:
        everywhere = self.cache.slots and self.policy.caching is CachingPolicy.ALL and not message.late
        if everywhere and message.publication.topic not in self.advertisements:
            return self._others(sender)
        return super()._next_hops(message, sender)

    def _copy(self, found: Iterable[Publication]) -> None:
        """Cache what has arrived for a client, if it is new and subscribed to here, the newest at the top."""
        # Select all first: a publication that these evict must not be cached again.
        for publication in [one for one in found if one.id not in self.cache]:
            self.cache_events["copied"] += self._put(publication, unwanted=False)

    def _put(self, publication: Publication, *, unwanted: bool = True) -> bool:
        """Cache a publication, unless its topic has a storage or it fits into no answer."""
        if publication.topic in self.advertisements or size_of(publication) > self.limits.answer_bytes:
            return False
        return self.cache.put(publication, unwanted=unwanted)

    def _forget_stored(self, topics: Iterable[str]) -> None:
        """Drop cached publications of topics whose storage has become known."""
        for topic in topics:
            if topic in self.advertisements:
                self.cache.forget(topic)

    def _remove_interest(self, client: Client, filters: Sequence[Filter]) -> None:
        """Remove the subscriptions of a client from the cache."""
        if client is STORAGE:
            return
        alone = [one for wanted in filters for one in self.cache.interest.remove(wanted)]
        if self._has_priority:
            self.cache.degrade(alone)
            self.cache_events["degraded"] += len(alone)
