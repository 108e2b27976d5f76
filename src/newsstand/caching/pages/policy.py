"""The policies of page caches: their definition, their registry, and policies from users' files.

A policy is one scoring function and options that say when it applies: at a push, at a miss, and whether evictions
raise the inflation value L. The page cache runs the function as plain Python, the replay kernel compiles it.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, cast, get_args

from newsstand.errors import BadInput, BadPolicyFile, NewsstandError, UnknownPolicy

if TYPE_CHECKING:
    from newsstand.caching.pages.cache import PageCache


OnPush = Literal["ignore", "by-value"]
OnMiss = Literal["ignore", "always", "by-value"]


class Entry(NamedTuple):
    """The input of a scoring function: one page at one proxy, at the moment it is scored."""

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
CacheClass = TypeVar("CacheClass", bound="PageCache")


@dataclass(frozen=True)
class Policy:
    """A named policy: a scoring function, a cache class, or neither if it is `offline` and only replayed."""

    name: str
    title: str
    score: Score | None = None
    cache_class: type[PageCache] | None = None
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
"""The prefix of the names of modules made from users' files."""


class PagePolicies(dict[str, Policy]):
    """Policies by name, in the order of registration."""

    def __missing__(self, name: str) -> Policy:
        raise UnknownPolicy(f"unknown policy '{name}'; known: {', '.join(self)}")

    def add(self, policy: Policy) -> None:
        self[policy.name] = policy

    def restore(self, policies: Mapping[str, Policy]) -> None:
        """Replace all policies by those of an earlier copy."""
        self.clear()
        self.update(policies)


POLICIES = PagePolicies()


def policy(
    name: str,
    *,
    push: OnPush = "ignore",
    miss: OnMiss = "always",
    inflates: bool = False,
    rescores: bool = True,
) -> Callable[[Score], Score]:
    """Register a scoring function: the entry with the lowest score leaves first, ties by the oldest score.

    `push` and `miss` define the treatment of a page that is not cached: "ignore" it, admit it "by-value" (only
    over entries that score strictly lower), or "always" make room for it. `inflates`: every eviction sets
    `e.inflation` to the score that left. `rescores`: a hit scores the entry again.
    """
    for word, chosen, known in (("push", push, get_args(OnPush)), ("miss", miss, get_args(OnMiss))):
        if chosen not in known:
            raise BadInput(f"policy '{name}': {word} is '{chosen}', not one of {', '.join(known)}")

    def register(score: Score) -> Score:
        title = (score.__doc__ or name).strip().splitlines()[0]
        names = _names_in(score, set())
        POLICIES.add(
            Policy(
                name,
                title,
                score,
                push=push,
                miss=miss,
                inflates=inflates,
                rescores=rescores,
                uses_beta="beta" in names,
                uses_requests="requests" in names,
                uses_push=push != "ignore",
            )
        )
        return score

    return register


def policy_class(
    name: str, *, uses_beta: bool = False, uses_push: bool = False
) -> Callable[[type[CacheClass]], type[CacheClass]]:
    """Register a page cache whose decisions are more than one scoring function; it needs a kernel in `KERNELS`."""

    def register(cache: type[CacheClass]) -> type[CacheClass]:
        title = (cache.__doc__ or name).strip().splitlines()[0]
        POLICIES.add(Policy(name, title, cache_class=cache, uses_beta=uses_beta, uses_push=uses_push))
        return cache

    return register


def _names_in(function: Callable[..., float], seen: set[object]) -> set[str]:
    """Return the names that a function and the plain functions that it calls read."""
    seen.add(function)
    plain = cast(FunctionType, function)
    names = set(plain.__code__.co_names)
    for other in [plain.__globals__.get(name) for name in names]:
        if isinstance(other, FunctionType) and other not in seen:
            names |= _names_in(other, seen)
    return names


def balance(density: float, beta: float) -> float:
    """Return density ^ (1/beta), exact for the betas 0.5, 1 and 2, infinite instead of an overflow."""
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


@dataclass(frozen=True)
class PolicyFile:
    """The text of a policy file, which is sent with a job to every worker."""

    path: str
    source: str

    @classmethod
    def read(cls, path: str | Path) -> PolicyFile:
        try:
            return cls(str(path), Path(path).read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise BadPolicyFile(f"{path}: cannot read the policy file ({reason})") from error

    def load(self) -> None:
        """Run the file, once in a process, to register its policies."""
        digest = hashlib.sha256(self.source.encode()).hexdigest()[:16]
        name = USERS + digest
        if name in sys.modules:
            return
        module = ModuleType(name)
        module.__file__ = self.path
        known = dict(POLICIES)
        sys.modules[name] = module
        try:
            exec(compile(self.source, self.path, "exec"), module.__dict__)
            self._check(known)
        except BaseException as error:
            del sys.modules[name]
            POLICIES.restore(known)
            if isinstance(error, NewsstandError | KeyboardInterrupt):
                raise
            raise BadPolicyFile(f"{self.path}: {self._describe(error)}") from error

    def _check(self, known: Mapping[str, object]) -> None:
        for name, before in known.items():
            if POLICIES[name] is not before:
                raise BadPolicyFile(f"{self.path}: '{name}' is registered already; choose another name")
        if len(POLICIES) == len(known):
            raise BadPolicyFile(f"{self.path}: registers no policy (decorate a function with @policy(...))")

    def _describe(self, error: BaseException) -> str:
        line = error.lineno if isinstance(error, SyntaxError) else None
        trace = None if line else error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self.path:
                line = trace.tb_lineno
            trace = trace.tb_next
        place = f"line {line}: " if line else ""
        return f"{place}{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
