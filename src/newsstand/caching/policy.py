"""What a cache policy is, and the dict of all of them.

A policy is one scoring function and the few words that say when it applies: at a push, at a miss,
whether evictions raise the inflation value L. The page cache runs the function as plain Python,
the replay kernel compiles the same function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, cast, get_args

from newsstand.errors import BadInput, UnknownPolicy

if TYPE_CHECKING:
    from newsstand.caching.page_cache import PageCache

OnPush = Literal["ignore", "by-value"]
OnMiss = Literal["ignore", "always", "by-value"]


class Entry(NamedTuple):
    """What a scoring function may look at: one page at one proxy, at the moment it is scored."""

    size: int
    """Bytes of the page."""
    subscriptions: int
    """s: subscriptions at this proxy that match the page."""
    accesses: int
    """a: requests since the page was stored; forgotten at eviction."""
    requests: int
    """A: all requests for the page at this proxy, hits and misses; survives eviction."""
    inflation: float
    """L: the value of the entry evicted last, 0 at the start (0 always unless the policy inflates)."""
    beta: float
    """The balance of popularity and recency in GD* (Jin & Bestavros 2001)."""


Score = Callable[[Entry], float]
Machine = TypeVar("Machine", bound="PageCache")


@dataclass(frozen=True)
class Policy:
    """A named policy: a scoring function, or a cache class with machinery of its own, or offline neither."""

    name: str
    title: str
    score: Score | None = None
    machine: type[PageCache] | None = None
    push: OnPush = "ignore"
    miss: OnMiss = "always"
    inflates: bool = False
    rescores: bool = True
    uses_beta: bool = False
    uses_requests: bool = False
    uses_push: bool = False
    offline: bool = False

    @property
    def is_users(self) -> bool:
        """Whether it comes from a user's file."""
        return self.score is not None and self.score.__module__.startswith(USERS)


USERS = "newsstand_policy_"
"""How the name of a module starts that was made out of a user's file."""


class Registry(Mapping[str, Policy]):
    """Policies by name, in the order of registration."""

    def __init__(self) -> None:
        self._policies: dict[str, Policy] = {}

    def __getitem__(self, name: str) -> Policy:
        try:
            return self._policies[name]
        except KeyError:
            raise UnknownPolicy(f"unknown policy '{name}'; known: {', '.join(self)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._policies

    def __iter__(self) -> Iterator[str]:
        return iter(self._policies)

    def __len__(self) -> int:
        return len(self._policies)

    def get(self, name: str, default: Policy | None = None) -> Policy | None:  # type: ignore[override]
        return self._policies.get(name, default)

    def add(self, policy: Policy) -> None:
        self._policies[policy.name] = policy

    def restore(self, policies: Mapping[str, Policy]) -> None:
        """Be again what `dict(registry)` was."""
        self._policies = dict(policies)


POLICIES = Registry()


def policy(
    name: str,
    *,
    push: OnPush = "ignore",
    miss: OnMiss = "always",
    inflates: bool = False,
    rescores: bool = True,
) -> Callable[[Score], Score]:
    """Register a scoring function: the entry with the lowest score leaves first, ties by the oldest score.

    `push` and `miss` say what happens to a page that is not cached: "ignore" it, admit it "by-value" (only
    over entries that score strictly lower), or "always" make room for it. `inflates`: every eviction sets
    `e.inflation` to the score that left. `rescores`: a hit scores the entry anew.
    """

    for word, chosen, known in (("push", push, get_args(OnPush)), ("miss", miss, get_args(OnMiss))):
        if chosen not in known:
            raise BadInput(f"policy '{name}': {word} is '{chosen}', not one of {', '.join(known)}")

    def register(score: Score) -> Score:
        title = (score.__doc__ or name).strip().splitlines()[0]
        uses_push = push != "ignore"
        POLICIES.add(
            Policy(
                name,
                title,
                score,
                push=push,
                miss=miss,
                inflates=inflates,
                rescores=rescores,
                uses_beta="beta" in _read_by(score),
                uses_requests="requests" in _read_by(score),
                uses_push=uses_push,
            )
        )
        return score

    return register


def machine(
    name: str, *, uses_beta: bool = False, uses_push: bool = False
) -> Callable[[type[Machine]], type[Machine]]:
    """Register a page cache whose decisions are more than one scoring function."""

    def register(cache: type[Machine]) -> type[Machine]:
        title = (cache.__doc__ or name).strip().splitlines()[0]
        POLICIES.add(Policy(name, title, machine=cache, uses_beta=uses_beta, uses_push=uses_push))
        return cache

    return register


def _read_by(function: Callable[..., float]) -> set[str]:
    """The names that a function reads, and the plain functions that it names, and so on."""
    names: set[str] = set()
    seen = {function}
    waiting = [function]
    while waiting:
        plain = cast(FunctionType, waiting.pop())
        names.update(plain.__code__.co_names)
        named = (plain.__globals__.get(name) for name in plain.__code__.co_names)
        for other in named:
            if isinstance(other, FunctionType) and other not in seen:
                seen.add(other)
                waiting.append(other)
    return names


def balance(density: float, beta: float) -> float:
    """density ^ (1/beta), exact for the betas 0.5, 1 and 2; infinite where it would overflow."""
    if beta == 1.0:
        return density
    if beta == 2.0:
        return math.sqrt(density)
    if beta == 0.5:
        return density * density
    exponent = 1.0 / beta
    if density > 1.0 and exponent * math.log2(density) > 1023.9:
        return math.inf
    return math.pow(density, exponent)
