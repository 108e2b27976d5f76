"""The policies of result caches: those of Uddin & Venkatasubramanian (2018, section IV), and extensions.

An eviction policy is a function that scores the tail of a result cache. While the caches together exceed their
budget, the tail with the lowest score leaves, among equals that of the cache with the smallest key. Two policies
have no score: `nc` caches nothing, and under `ttl` tails leave when they expire, whatever the budget.

>>> @result_policy("biggest")
... def biggest(tail):
...     '''The biggest tail leaves first.'''
...     return -tail.size
>>> RESULT_POLICIES.pop("biggest").title
'The biggest tail leaves first.'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from newsstand.errors import UnknownPolicy


class Tail(NamedTuple):
    """The input of a scoring function: the oldest object of one result cache, at the moment it is scored."""

    size: int
    """s: bytes of the object."""
    waiting: int
    """f: subscribers that still have to retrieve it."""
    inserted_ms: int
    """When it was put into the cache."""
    accessed_ms: int
    """When an object was last put into its cache or retrieved from it."""
    expires_ms: int
    """When its time to live ends; that may be in the past."""


TailScore = Callable[[Tail], float]


@dataclass(frozen=True)
class ResultPolicy:
    """A named policy: a scoring function, or none if nothing is cached or tails only expire."""

    name: str
    title: str
    score: TailScore | None = None
    keeps: bool = True
    expires: bool = False
    bounded: bool = False
    """Whether tails leave before they expire, the next to expire first, while the budget is exceeded."""
    averages: bool = False
    """Whether growth is averaged over all windows, not measured over the latest ones."""
    anywhere: bool = False
    """Whether every object is scored as if it were a tail, and the one with the lowest score leaves.

    The time of its insertion takes the place of the last access and the expiry.
    """
    follows: tuple[str, ...] = ()
    """The policies to follow: the best one of the last minutes takes over; the first one begins."""

    @property
    def evicts(self) -> bool:
        """Whether objects leave while the budget is exceeded."""
        return self.score is not None or self.bounded


class ResultPolicies(dict[str, ResultPolicy]):
    """Policies by name, in the order of registration."""

    def __missing__(self, name: str) -> ResultPolicy:
        raise UnknownPolicy(f"unknown policy '{name}' of result caches; known: {', '.join(self)}")

    def add(self, policy: ResultPolicy) -> None:
        self[policy.name] = policy


RESULT_POLICIES = ResultPolicies()


def result_policy(name: str) -> Callable[[TailScore], TailScore]:
    """Register a scoring function: the cache whose tail scores lowest loses it first."""

    def register(score: TailScore) -> TailScore:
        title = (score.__doc__ or name).strip().splitlines()[0]
        RESULT_POLICIES.add(ResultPolicy(name, title, score))
        return score

    return register


RESULT_POLICIES.add(ResultPolicy("nc", "NC: nothing is cached.", keeps=False))


@result_policy("lru")
def lru(tail: Tail) -> float:
    """LRU: the cache that was accessed least recently."""
    return tail.accessed_ms


@result_policy("lsc")
def lsc(tail: Tail) -> float:
    """LSC: fewest waiting subscribers (Table I)."""
    return tail.waiting


@result_policy("lscz")
def lscz(tail: Tail) -> float:
    """LSCz: fewest waiting subscribers per byte (Table I)."""
    return tail.waiting / tail.size


@result_policy("lsd")
def lsd(tail: Tail) -> float:
    """LSD: least delay saved per byte (Table I), a fetch taking 0.5 s and a second for each 10 MB."""
    return tail.waiting * (5_000_000 + tail.size) / tail.size


@result_policy("exp")
def exp(tail: Tail) -> float:
    """EXP: the tail that expires, or expired, earliest (section IV.B)."""
    return tail.expires_ms


RESULT_POLICIES.add(ResultPolicy("ttl", "TTL: a tail leaves when it expires, whatever the budget.", expires=True))


# Not in the paper: `ttl` observes the budget only on average, and measures growth in one window, which is never
# typical. `lscz` scores tails only, so that large objects block small ones. The measured gains are in
# docs/reference/result-policies.md.
_POLICIES = (
    ResultPolicy(
        "ttl-bounded",
        "TTL within the budget: a tail leaves when it expires, or is the next to expire and there is no room.",
        expires=True,
        bounded=True,
    ),
    ResultPolicy(
        "ttl-ewma",
        "TTL within the budget, its rates averaged over all windows, the latest counting for a quarter.",
        expires=True,
        bounded=True,
        averages=True,
    ),
    ResultPolicy(
        "lscz-any",
        "LSCz over all objects, not tails: fewest waiting subscribers per byte, so large ones may not even stay.",
        score=lscz,
        anywhere=True,
    ),
    ResultPolicy(
        "adaptive",
        "Adaptive: LSC, LSCz over all objects or bounded TTL, whichever has hit most in the last minutes.",
        score=lsc,
        follows=("lsc", "lscz-any", "ttl-bounded"),
    ),
)

for _policy in _POLICIES:
    RESULT_POLICIES.add(_policy)

BEYOND = tuple(policy.name for policy in _POLICIES)
"""The names of the policies that are not in the paper."""
