"""Topics move from broker to broker without being lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from newsstand.coordinator.placement import Placement
from newsstand.coordinator.records import Storages
from newsstand.model import is_topic

ALL = frozenset("abcd")


def storages(wanted: str, leaving: str = "") -> Storages:
    return Storages(frozenset(wanted), frozenset(leaving))


def want(placement: Placement, wanted: Mapping[str, Collection[str]], alive: Collection[str] = ALL) -> None:
    if changes := placement.wanting(wanted, alive, ALL):
        placement.change(changes)


def beat(placement: Placement, broker: str, stored: Collection[str], alive: Collection[str] = ALL) -> list[str]:
    placement.report(broker, stored)
    if changes := placement.releasing(broker, alive):
        placement.change(changes)
    return placement.told(broker)


def placed(wanted: Mapping[str, str]) -> Placement:
    """Topics that are complete wherever they are wanted."""
    placement = Placement()
    want(placement, wanted)
    for broker in ALL:
        beat(placement, broker, placement.told(broker))
    return placement


def test_a_broker_keeps_a_topic_until_all_who_are_wanted_have_it() -> None:
    placement = placed({"news": "a"})
    assert placement.progress("news", ALL) == "settled"
    want(placement, {"news": "bc"})
    assert placement.topics() == {"news": storages("bc", "a")}
    assert beat(placement, "b", ["news"]) == ["news"]
    assert beat(placement, "a", ["news"]) == ["news"], "c does not have it yet"
    assert placement.progress("news", ALL) == "moving"
    beat(placement, "c", ["news"])
    assert beat(placement, "a", ["news"]) == []
    assert placement.complete("news") == ["b", "c"]
    assert placement.progress("news", ALL) == "settled"


def test_those_who_are_dead_are_not_waited_for_but_one_must_live() -> None:
    placement = placed({"news": "a"})
    want(placement, {"news": "bc"}, "abc")
    assert beat(placement, "a", ["news"], alive="a") == ["news"], "nobody who is wanted lives"
    beat(placement, "b", ["news"], "ab")
    assert beat(placement, "a", ["news"], alive="ab") == []
    assert placement.progress("news", "ab") == "moving", "c does not have it"


def test_what_a_broker_told_before_it_was_told_to_drop_counts_no_longer() -> None:
    placement = placed({"news": "a"})
    want(placement, {"news": "b"})
    beat(placement, "b", ["news"])
    assert beat(placement, "a", ["news"]) == []
    want(placement, {"news": "a"})
    assert beat(placement, "b", ["news"]) == ["news"], "a has dropped it, and begins anew"
    assert beat(placement, "a", []) == ["news"]
    assert beat(placement, "a", ["news"]) == ["news"]
    assert beat(placement, "b", ["news"]) == []


def test_a_broker_that_is_wanted_again_before_it_was_told_still_has_it() -> None:
    placement = placed({"news": "a"})
    want(placement, {"news": "b"})
    want(placement, {"news": "a"})
    assert beat(placement, "b", []) == []
    assert placement.progress("news", ALL) == "settled"


def test_all_who_had_to_keep_a_topic_keep_it_until_it_has_arrived() -> None:
    placement = placed({"news": "a"})
    want(placement, {"news": "b"})
    want(placement, {"news": "c"})
    assert placement.topics() == {"news": storages("c", "ab")}
    assert beat(placement, "b", ["news"]) == ["news"]
    beat(placement, "c", ["news"])
    assert (beat(placement, "a", ["news"]), beat(placement, "b", ["news"])) == ([], [])


def test_a_topic_that_is_wanted_nowhere_is_dropped() -> None:
    placement = placed({"news": "ab", "sport": "a"})
    want(placement, {"sport": "a"})
    assert placement.topics() == {"news": storages("", "ab"), "sport": storages("a")}
    assert beat(placement, "a", ["news", "sport"]) == ["sport"]
    assert beat(placement, "b", ["news"]) == []
    assert list(placement.topics()) == ["sport"]


def test_who_is_not_known_any_more_is_waited_for_only_while_it_may_be_the_last() -> None:
    placement = placed({"news": "a"})
    placement.change(placement.wanting({"news": "b"}, "bc", "bc"))
    assert placement.topics() == {"news": storages("b", "a")}
    beat(placement, "b", ["news"], "bc")
    assert placement.progress("news", "bc") == "settled", "nobody who lives is leaving"
    placement.change(placement.wanting({"news": "b"}, "bc", "bc"))
    assert placement.topics() == {"news": storages("b")}


def test_a_broker_that_is_silent_or_begins_anew_is_not_complete() -> None:
    placement = placed({"news": "ab"})
    placement.silence("a")
    assert placement.complete("news") == ["b"]
    placement.silence_others("ac")
    assert placement.complete("news") == []
    assert placement.progress("news", "ac") == "missing"


def test_topics_that_a_broker_need_not_keep_are_passed_over() -> None:
    placement = placed({"news": "a"})
    beat(placement, "b", ["news", "never heard of"])
    assert placement.complete("news") == ["a"]
    want(placement, {"news": "b"})
    assert beat(placement, "a", ["news"]) == ["news"], "b told of it before it had to keep it"


def test_the_version_rises_with_every_change_and_only_then() -> None:
    placement = Placement(7, {"news": storages("a")})
    assert placement.wanting({"news": "a"}, ALL, ALL) == {}
    want(placement, {"news": "b"})
    assert placement.version == 8
    beat(placement, "a", ["news"])
    assert placement.version == 8
    beat(placement, "b", ["news"])
    beat(placement, "a", ["news"])
    assert placement.version == 9


@pytest.mark.parametrize("name", ["news", "sport/football", "Nachrichten für Köln", "x" * 256])
def test_names_of_topics(name: str) -> None:
    assert is_topic(name)


@pytest.mark.parametrize("name", ["", "x" * 257, "news\n", "a\0b", "\x7f"])
def test_no_names_of_topics(name: str) -> None:
    assert not is_topic(name)
