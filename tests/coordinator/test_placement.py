"""Topics move from broker to broker without loss."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from newsstand.coordinator.model import StorageSet
from newsstand.coordinator.placement import TopicPlacement
from newsstand.model import is_topic

ALL = frozenset("abcd")


def storages(wanted: str, leaving: str = "") -> StorageSet:
    return StorageSet(frozenset(wanted), frozenset(leaving))


def want(placement: TopicPlacement, wanted: Mapping[str, Collection[str]], alive: Collection[str] = ALL) -> None:
    if changes := placement.changes_for(wanted, alive, ALL):
        placement.change(changes)


def beat(
    placement: TopicPlacement, broker: str, stored: Collection[str], alive: Collection[str] = ALL
) -> list[str]:
    placement.report(broker, stored)
    if changes := placement.releases_of(broker, alive):
        placement.change(changes)
    return placement.topics_of(broker)


def placed(wanted: Mapping[str, str]) -> TopicPlacement:
    """Topics that are complete wherever they are wanted."""
    placement = TopicPlacement()
    want(placement, wanted)
    for broker in ALL:
        beat(placement, broker, placement.topics_of(broker))
    return placement


def test_broker_keeps_topic_until_all_wanted_brokers_have_it() -> None:
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


def test_dead_brokers_are_not_awaited_but_one_must_live() -> None:
    placement = placed({"news": "a"})
    want(placement, {"news": "bc"}, "abc")
    assert beat(placement, "a", ["news"], alive="a") == ["news"], "nobody who is wanted lives"
    beat(placement, "b", ["news"], "ab")
    assert beat(placement, "a", ["news"], alive="ab") == []
    assert placement.progress("news", "ab") == "moving", "c does not have it"


def test_report_before_drop_does_not_count() -> None:
    placement = placed({"news": "a"})
    want(placement, {"news": "b"})
    beat(placement, "b", ["news"])
    assert beat(placement, "a", ["news"]) == []
    want(placement, {"news": "a"})
    assert beat(placement, "b", ["news"]) == ["news"], "a has dropped it, and starts from nothing"
    assert beat(placement, "a", []) == ["news"]
    assert beat(placement, "a", ["news"]) == ["news"]
    assert beat(placement, "b", ["news"]) == []


def test_broker_wanted_again_before_drop_still_has_topic() -> None:
    placement = placed({"news": "a"})
    want(placement, {"news": "b"})
    want(placement, {"news": "a"})
    assert beat(placement, "b", []) == []
    assert placement.progress("news", ALL) == "settled"


def test_earlier_storages_keep_topic_until_it_has_arrived() -> None:
    placement = placed({"news": "a"})
    want(placement, {"news": "b"})
    want(placement, {"news": "c"})
    assert placement.topics() == {"news": storages("c", "ab")}
    assert beat(placement, "b", ["news"]) == ["news"]
    beat(placement, "c", ["news"])
    assert (beat(placement, "a", ["news"]), beat(placement, "b", ["news"])) == ([], [])


def test_topic_wanted_nowhere_is_dropped() -> None:
    placement = placed({"news": "ab", "sport": "a"})
    want(placement, {"sport": "a"})
    assert placement.topics() == {"news": storages("", "ab"), "sport": storages("a")}
    assert beat(placement, "a", ["news", "sport"]) == ["sport"]
    assert beat(placement, "b", ["news"]) == []
    assert list(placement.topics()) == ["sport"]


def test_unknown_broker_is_not_awaited_beside_live_storages() -> None:
    placement = placed({"news": "a"})
    placement.change(placement.changes_for({"news": "b"}, "bc", "bc"))
    assert placement.topics() == {"news": storages("b", "a")}
    beat(placement, "b", ["news"], "bc")
    assert placement.progress("news", "bc") == "settled", "nobody who lives is leaving"
    placement.change(placement.changes_for({"news": "b"}, "bc", "bc"))
    assert placement.topics() == {"news": storages("b")}


def test_broker_silent_or_restarted_is_incomplete() -> None:
    placement = placed({"news": "ab"})
    placement.drop_reports("a")
    assert placement.complete("news") == ["b"]
    placement.retain_reports("ac")
    assert placement.complete("news") == []
    assert placement.progress("news", "ac") == "missing"


def test_topics_not_wanted_at_broker_are_ignored() -> None:
    placement = placed({"news": "a"})
    beat(placement, "b", ["news", "never heard of"])
    assert placement.complete("news") == ["a"]
    want(placement, {"news": "b"})
    assert beat(placement, "a", ["news"]) == ["news"], "b reported it before it had to store it"


def test_version_increases_exactly_with_changes() -> None:
    placement = TopicPlacement(7, {"news": storages("a")})
    assert placement.changes_for({"news": "a"}, ALL, ALL) == {}
    want(placement, {"news": "b"})
    assert placement.version == 8
    beat(placement, "a", ["news"])
    assert placement.version == 8
    beat(placement, "b", ["news"])
    beat(placement, "a", ["news"])
    assert placement.version == 9


@pytest.mark.parametrize("name", ["news", "sport/football", "Nachrichten für Köln", "x" * 256])
def test_topic_names_accepted_when_valid(name: str) -> None:
    assert is_topic(name)


@pytest.mark.parametrize("name", ["", "x" * 257, "news\n", "a\0b", "\x7f"])
def test_topic_names_rejected_when_invalid(name: str) -> None:
    assert not is_topic(name)
