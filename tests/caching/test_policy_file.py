"""A user's own policies from a file: used like any other, with precise errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.caching.replays import ProxyTimeline, arrange, by_proxy, live, replay
from support.caching.traces import Event, Publication, Request, Subscription, Trace

from newsstand.caching import POLICIES, page_cache
from newsstand.caching.pages.policy import PolicyFile
from newsstand.errors import BadInput, BadPolicyFile

Write = Callable[[str], PolicyFile]

EAGER = """
from newsstand.caching import policy
from newsstand.caching.pages.policy import balance

THIRST = 3

def demand(e):
    return eagerness(e) / e.size

def eagerness(e):
    return THIRST * e.subscriptions + e.accesses

@policy("eager", push="by-value", miss="by-value", inflates=True)
def eager(e):
    '''Eager: subscriptions count three times.

    More of it.'''
    return e.inflation + balance(demand(e), e.beta)
"""


@pytest.fixture(autouse=True)
def known() -> Iterator[list[str]]:
    """The policies known before the test, and again after it."""
    policies, modules = dict(POLICIES), set(sys.modules)
    yield list(policies)
    POLICIES.restore(policies)
    for name in set(sys.modules) - modules:
        if name.startswith("newsstand_policy_"):
            del sys.modules[name]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a policy file and read it."""

    def written(source: str) -> PolicyFile:
        path = tmp_path / "mine.py"
        path.write_text(source)
        return PolicyFile.read(path)

    return written


def busy() -> tuple[list[Event], ProxyTimeline]:
    """A proxy at which six pages of three sizes come and go."""
    trace = Trace(
        [Publication(page, 5 * page, 2 + page % 3) for page in range(6)],
        [Request(now, 0, now * now % 7 % 6) for now in range(40)],
        [Subscription(0, page, page % 4) for page in range(6)],
    )
    (seen,) = by_proxy(arrange(trace))
    return trace.events(0), seen


def test_policy_file_registers_policy(write: Write, known: list[str]) -> None:
    write(EAGER).load()
    assert list(POLICIES) == [*known, "eager"]
    policy = POLICIES["eager"]
    assert policy.title == "Eager: subscriptions count three times."
    assert policy.uses_push
    assert policy.uses_beta


def test_policy_file_uses_beta_only_if_read(write: Write) -> None:
    write(EAGER.replace("balance(demand(e), e.beta)", "demand(e)")).load()
    assert not POLICIES["eager"].uses_beta


def test_policy_file_runs_live(write: Write) -> None:
    write(EAGER).load()
    cache = page_cache("eager", capacity=12, beta=1.0)
    assert cache.push("A", 12, 1)
    assert not cache.request("B", 12, 0)
    assert "B" not in cache
    assert cache.push("B", 12, 2)


def test_policy_file_compiles_with_called_functions(write: Write) -> None:
    write(EAGER).load()
    events, seen = busy()
    for beta in (1.0, 2.0, 0.7):
        outcomes = [step.outcome for step in live("eager", events, capacity=8, beta=beta)]
        assert replay("eager", seen, capacity=8, beta=beta) == outcomes
        assert set(outcomes) == {"hit", "miss", "stored", "rejected"}


def test_policy_file_may_return_integers(write: Write) -> None:
    write(
        """
from newsstand.caching import policy

@policy("lfu")
def lfu(e):
    return e.accesses
"""
    ).load()
    events, seen = busy()
    assert replay("lfu", seen, capacity=8) == [step.outcome for step in live("lfu", events, capacity=8)]


def test_policy_file_runs_once(write: Write) -> None:
    file = write(EAGER)
    file.load()
    eager = POLICIES["eager"]
    file.load()
    assert POLICIES["eager"] is eager


def test_policy_file_may_register_several_policies(write: Write, known: list[str]) -> None:
    write(EAGER + EAGER.replace('"eager"', '"as eager"')).load()
    assert list(POLICIES) == [*known, "eager", "as eager"]


def test_policy_file_score_of_nan_is_error(write: Write) -> None:
    write(
        """
from newsstand.caching import policy

@policy("lost")
def lost(e):
    return e.inflation * float("inf")
"""
    ).load()
    events, seen = busy()
    with pytest.raises(ValueError, match="the score is NaN"):
        live("lost", events, capacity=8)
    with pytest.raises(ValueError, match="the score is NaN"):
        replay("lost", seen, capacity=8)


def test_policy_file_score_may_be_infinite(write: Write) -> None:
    write(
        """
from newsstand.caching import policy

@policy("priceless")
def priceless(e):
    return float("inf")
"""
    ).load()
    events, seen = busy()
    outcomes = [step.outcome for step in live("priceless", events, capacity=8)]
    assert replay("priceless", seen, capacity=8) == outcomes


def test_policy_file_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.py"
    with pytest.raises(BadPolicyFile) as error:
        PolicyFile.read(path)
    assert str(error.value) == f"{path}: cannot read the policy file (No such file or directory)"


def test_policy_file_of_binary_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadPolicyFile) as error:
        PolicyFile.read(path)
    assert str(error.value) == f"{path}: cannot read the policy file (not UTF-8 text)"


FAULTS = {
    "a syntax error": (EAGER + "def broken(:\n", "line 19: SyntaxError: "),
    "no policy": ("x = 1\n", r"registers no policy \(decorate a function with @policy\(...\)\)"),
    "an empty file": ("", "registers no policy"),
    "the name of a built-in": (
        EAGER.replace('"eager"', '"gdstar"'),
        "'gdstar' is registered already; choose another name",
    ),
    "a good policy and the name of a built-in": (
        EAGER + EAGER.replace('"eager"', '"dm"'),
        "'dm' is registered already; choose another name",
    ),
    "an exception": (EAGER + "1 / 0\n", "line 19: ZeroDivisionError: division by zero"),
    "a module that is missing": (
        "import newsstand_of_old\n",
        "line 1: ModuleNotFoundError: No module named 'newsstand_of_old'",
    ),
    "an option that is none": (
        EAGER.replace("inflates=True", "inflate=True"),
        "line 13: TypeError: .*'inflate'",
    ),
    "an exit": (EAGER + "raise SystemExit(3)\n", "line 19: SystemExit: 3"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_policy_file_error_names_line_and_registers_nothing(write: Write, known: list[str], fault: str) -> None:
    source, message = FAULTS[fault]
    file = write(source)
    before, modules = dict(POLICIES), set(sys.modules)
    for _ in range(2):
        with pytest.raises(BadPolicyFile, match=rf"^{file.path}: {message}") as error:
            file.load()
        assert "\n" not in str(error.value)
        assert dict(POLICIES) == before
        assert not {name for name in set(sys.modules) - modules if name.startswith("newsstand_policy_")}
    assert list(POLICIES) == known


def test_policy_rejects_unknown_push_rule(write: Write) -> None:
    file = write(
        """
from newsstand.caching import policy

@policy("mine", push="never")
def mine(e):
    return 0.0
"""
    )
    with pytest.raises(BadInput, match="push is 'never', not one of ignore, by-value"):
        file.load()
