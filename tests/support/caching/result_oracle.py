"""The result caches by brute force, from their rules alone.

Nothing is shared with the package, and nothing is clever: an object carries the set of those who wait for it, and
every decision looks through everything. Time goes from one instant to the next at which something can happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(eq=False)
class Object:
    size: int
    inserted: int
    stamp: int
    waiting: set[int]


@dataclass
class Subscription:
    attached: set[int] = field(default_factory=set)
    cached: list[Object] = field(default_factory=list)
    access: int = 0
    T: int = 0
    A: list[int] = field(default_factory=lambda: [0])
    C: list[int] = field(default_factory=lambda: [0])


class Broker:
    """Everything that happens at one broker, event by event; `n` holds the counts."""

    def __init__(self, policy: str, B: int, end: int, W: int, K: int, cap: int, evict: str, expiry: str) -> None:
        self.policy, self.B, self.end, self.W, self.K, self.cap = policy, B, end, W, K, cap
        self.evict, self.expiry = evict, expiry
        self.T_new = min(cap, B // 10_000)
        self.subscriptions: dict[int, Subscription] = {}
        self.pending: dict[tuple[int, int], list[Object]] = {}
        self.online: set[int] = set()
        self.n: Counter[str] = Counter()
        self.sum_rho_T: list[Fraction] = []
        self.now = 0
        self.k = 0

    def total(self) -> int:
        return sum(o.size for s in self.subscriptions.values() for o in s.cached)

    def pass_to(self, time: int) -> None:
        """Integrate the size up to a moment."""
        self.n["size_integral"] += self.total() * (time - self.now)
        self.n["size_integral_warm"] += self.total() * max(0, time - max(self.now, self.W))
        self.now = time

    def expires(self, s: Subscription) -> int:
        return s.cached[0].stamp if self.expiry == "object" else s.cached[0].inserted + s.T

    def remove(self, s: Subscription, o: Object, reason: str) -> None:
        assert o is s.cached[0]
        s.cached.remove(o)
        self.n[f"{reason}_objects"] += 1
        self.n[f"{reason}_bytes"] += o.size
        self.n[f"hold_{reason}_ms"] += self.now - o.inserted
        if reason != "dropped":
            s.C[-1] += o.size

    def expire(self, time: int) -> None:
        """Drop what expires up to a moment, the earliest first."""
        while self.policy == "ttl":
            due = [(max(self.expires(s), self.now), i) for i, s in self.subscriptions.items() if s.cached]
            if not due or min(due)[0] > time:
                return
            at, i = min(due)
            self.pass_to(at)
            s = self.subscriptions[i]
            self.remove(s, s.cached[0], "dropped")

    def recompute(self) -> None:
        self.k += 1
        q = min(self.K, self.k)
        N = sum(len(s.attached) for s in self.subscriptions.values())
        rho_T = Fraction(0)
        for s in self.subscriptions.values():
            D = sum(s.A[-q:]) - sum(s.C[-q:])
            n = len(s.attached)
            if n == 0:
                s.T = self.T_new
            elif D <= 0:
                s.T = self.cap
            else:
                rho = Fraction(D, q * self.W)
                s.T = min(self.cap, int(Fraction(n, N) * self.B / rho))
                rho_T += rho * s.T
            s.A.append(0)
            s.C.append(0)
        self.sum_rho_T.append(rho_T)

    def advance(self, time: int) -> None:
        while self.policy != "nc" and (self.k + 1) * self.W <= time:
            instant = (self.k + 1) * self.W
            self.expire(instant)
            self.pass_to(instant)
            self.recompute()
            self.expire(instant)
        self.expire(time)
        self.pass_to(time)

    def key(self, i: int) -> tuple[float, int]:
        s = self.subscriptions[i]
        tail, f = s.cached[0], len(s.cached[0].waiting)
        keys = {
            "lru": s.access,
            "lsc": f,
            "lscz": f / tail.size,
            "lsd": f * (5_000_000 + tail.size) / tail.size,
            "exp": self.expires(s),
        }
        return keys[self.policy], i

    def make_room(self) -> None:
        while self.policy not in ("nc", "ttl") and self.total() > self.B:
            _, i = min(self.key(i) for i, s in self.subscriptions.items() if s.cached)
            self.remove(self.subscriptions[i], self.subscriptions[i].cached[0], "dropped")
        self.n["max_bytes"] = max(self.n["max_bytes"], self.total())
        if self.now >= self.W:
            self.n["max_bytes_warm"] = max(self.n["max_bytes_warm"], self.total())

    def retrieve(self, k: int, i: int, push: str = "") -> None:
        s = self.subscriptions[i]
        if not self.pending[k, i]:
            return
        for o in self.pending[k, i]:
            hit = o in s.cached
            self.n["hits" if hit else "misses"] += 1
            self.n["hit_bytes" if hit else "miss_bytes"] += o.size
            if push:
                self.n["hits_push" if hit else "misses_push"] += 1
            self.n["lat_e7"] += 2_500_000 + 10 * o.size + (0 if hit else 5_000_000 + o.size)
        self.pending[k, i] = []
        s.access = self.now
        self.leave(k, s, "consumed")

    def leave(self, k: int, s: Subscription, reason: str) -> None:
        for o in list(s.cached):
            o.waiting.discard(k)
            if not o.waiting:
                self.remove(s, o, reason)

    def result(self, i: int, size: int) -> None:
        self.n["results"] += 1
        s = self.subscriptions.get(i)
        if s is None or not s.attached:
            self.n["orphans"] += 1
            return
        self.n["vol_bytes"] += size
        o = Object(size, self.now, self.now + s.T, set(s.attached))
        for k in s.attached:
            self.pending[k, i].append(o)
        if self.policy != "nc":
            s.cached.append(o)
            s.A[-1] += size
            s.access = self.now
            self.n["put"] += 1
            self.n["ttl_insert_ms"] += s.T
        if self.evict == "put":
            self.make_room()
        for k in sorted(s.attached & self.online):
            self.retrieve(k, i, "push")
        if self.evict == "after":
            self.make_room()

    def event(self, kind: str, k: int, i: int, size: int) -> None:
        if kind == "result":
            self.result(i, size)
        elif kind == "login" and k not in self.online:
            self.online.add(k)
            for own in sorted(own for who, own in self.pending if who == k):
                self.retrieve(k, own)
        elif kind == "logout" and k in self.online:
            self.online.remove(k)
        elif kind == "subscribe" and (k, i) not in self.pending:
            s = self.subscriptions.setdefault(
                i, Subscription(T=self.T_new, A=[0] * (self.k + 1), C=[0] * (self.k + 1))
            )
            s.attached.add(k)
            self.pending[k, i] = []
        elif kind == "unsubscribe" and (k, i) in self.pending:
            self.n["undelivered"] += len(self.pending.pop((k, i)))
            self.subscriptions[i].attached.remove(k)
            self.leave(k, self.subscriptions[i], "abandoned")
        else:
            self.n["ignored_events"] += 1


def replay(
    rows: Iterable[tuple[int, str, int, int, int]],
    policy: str,
    B: int,
    *,
    end: int,
    W: int,
    K: int,
    cap: int,
    evict: str,
    expiry: str,
) -> tuple[Counter[str], list[Fraction]]:
    """All counts by their names, those that are zero left out, and the sum of rho_i T_i at every recompute."""
    broker = Broker(policy, B, end, W, K, cap, evict, expiry)
    for time, kind, k, i, size in rows:
        broker.advance(time)
        broker.event(kind, k, i, size)
    broker.advance(end)
    n = broker.n
    n["fetch_bytes"] = n["vol_bytes"] + n["miss_bytes"]
    n["left_bytes"] = broker.total()
    n["left_objects"] = sum(len(s.cached) for s in broker.subscriptions.values())
    n["pending_end"] = sum(len(objects) for objects in broker.pending.values())
    return +n, broker.sum_rho_T
