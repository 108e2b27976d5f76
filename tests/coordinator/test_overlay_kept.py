"""The overlay in a coordinator's store: what is kept, what an older store lacks, what a full disk leaves."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from coordinating import LEASE_S, broker, coordinating, coordinator_over, live, report

from newsstand.coordinator.records import BrokerRecord, Storages, Tree
from newsstand.coordinator.store import Store
from newsstand.coordinator.store_sqlite import SqliteStore
from newsstand.errors import BadInput, NoRoom

STORES: list[Callable[[Path], Store]] = [SqliteStore]
"""Every store there is passes the same tests."""


@pytest.mark.parametrize("opened", STORES)
def test_a_tree_is_kept_whole(opened: Callable[[Path], Store], tmp_path: Path) -> None:
    store = opened(tmp_path / "store")
    assert store.tree() == Tree()
    store.keep_tree(Tree(3, frozenset({("a", "b"), ("b", "c")})))
    store.keep_tree(tree := Tree(4, frozenset({("a", "c")})))
    assert store.tree() == tree
    store.close()
    again = opened(tmp_path / "store")
    assert again.tree() == tree
    again.close()


@pytest.mark.parametrize("opened", STORES)
def test_storages_are_kept_topic_by_topic(opened: Callable[[Path], Store], tmp_path: Path) -> None:
    store = opened(tmp_path / "store")
    assert store.storages() == (0, {})
    news, sport = Storages(frozenset("ab"), frozenset("c")), Storages(frozenset("a"))
    store.keep_storages(1, {"news": news, "sport": sport, "art": sport})
    store.keep_storages(2, {"sport": Storages(frozenset(), frozenset("a")), "art": Storages(frozenset())})
    store.close()
    again = opened(tmp_path / "store")
    assert again.storages() == (2, {"news": news, "sport": Storages(frozenset(), frozenset("a"))})
    again.close()


def test_a_store_from_before_there_was_an_overlay_gets_one(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.sqlite"
    store = SqliteStore(path)
    for name in ("a", "b", "c"):
        store.keep_broker(BrokerRecord(name, f"http://{name}:8790", dead=name == "c"))
    identity = store.identity
    store.close()
    connection = sqlite3.connect(path)
    connection.executescript("DROP TABLE links; DROP TABLE storages; PRAGMA user_version = 1;")
    connection.close()
    with coordinating(tmp_path) as (coordinator, opened):
        assert opened.identity == identity
        assert opened.tree() == coordinator.overlay.tree == Tree(1, frozenset({("a", "b")}))
        assert coordinator.overlay.storages() == {}


def test_a_dead_broker_is_out_of_its_neighbours_lists_with_the_next_heartbeat(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, _):
        for name in ("harbour", "south", "core"):
            coordinator.register(broker(name), 0)
        told = coordinator.heartbeat("south", report(), 0).overlay
        assert [(one.name, one.url) for one in told.links] == [
            ("core", "http://core:8790"),
            ("harbour", "http://harbour:8790"),
        ]
        coordinator.drain("core")
        assert coordinator.heartbeat("south", report(), 0).overlay == told, "maintenance changes nothing"
        now = live(coordinator, LEASE_S + 0.5, "south", "core")
        after = coordinator.heartbeat("south", report(), now).overlay
        assert [one.name for one in after.links] == ["core"]
        assert after.version == told.version + 1


def test_neighbours_learn_where_a_broker_is_now(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, _):
        coordinator.register(broker("a"), 0)
        coordinator.register(broker("b"), 0)
        before = coordinator.overlay.tell("a")
        coordinator.register(broker("b"), 1)
        assert coordinator.overlay.tell("a") == before
        coordinator.register(BrokerRecord("b", "http://elsewhere:1"), 1)
        after = coordinator.overlay.tell("a")
        assert (after.version, after.links[0].url) == (before.version + 1, "http://elsewhere:1")


def test_a_tree_that_the_disk_refuses_is_mended_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with coordinating(tmp_path) as (coordinator, store):
        for name in ("a", "b", "c"):
            coordinator.register(broker(name), 0)

        def full(_: Tree) -> None:
            raise NoRoom("no room left on the disk")

        with monkeypatch.context() as patched:
            patched.setattr(store, "keep_tree", full)
            with pytest.raises(NoRoom):
                coordinator.leave("a")
        assert coordinator.heartbeat("b", report(), 1).overlay.links == []
        coordinator.tick(1)
        assert store.tree().links == {("b", "c")}


def test_a_topic_on_its_way_is_kept_over_a_restart(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, store):
        for name in ("a", "b"):
            coordinator.register(broker(name), 0)
        coordinator.overlay.want({"news": ["a"]})
        coordinator.heartbeat("a", report(stored=["news"]), 0)
        coordinator.overlay.want({"news": ["b"]})
        again = coordinator_over(store)
        assert again.overlay.storages() == {"news": {"wanted": ["b"], "complete": [], "leaving": ["a"]}}
        assert again.heartbeat("a", report(stored=["news"]), 1).overlay.storage.topics == ["news"]
        again.heartbeat("b", report(stored=["news"]), 1)
        assert again.heartbeat("a", report(stored=["news"]), 1).overlay.storage.topics == []
        assert store.storages()[1] == {"news": Storages(frozenset("b"))}


def test_a_broker_that_leaves_and_comes_back_has_its_topics_again(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, _):
        for name in ("a", "b"):
            coordinator.register(broker(name), 0)
        coordinator.overlay.want({"news": ["a"]})
        coordinator.leave("a")
        assert coordinator.overlay.progress() == {"missing": 1}
        coordinator.register(broker("a"), 1)
        assert coordinator.overlay.tell("a").storage.topics == ["news"]


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ({"news": ["a", "ghost"], "sport": ["spook"]}, "no such broker is registered: 'ghost', 'spook'"),
        ({"news": []}, "name brokers, or leave the topic out: 'news'"),
        ({"news": ["a"], "a\nb": ["a"]}, r"a topic is 1 to 256 characters without control characters: 'a\nb'"),
        ({"news": list("ghijklm")}, "'g', 'h', 'i', 'j', 'k' and 2 more"),
    ],
)
def test_an_assignment_that_is_wrong_changes_nothing(
    tmp_path: Path, assignment: dict[str, list[str]], said: str
) -> None:
    with coordinating(tmp_path) as (coordinator, store):
        coordinator.register(broker("a"), 0)
        with pytest.raises(BadInput) as raised:
            coordinator.overlay.want(assignment)
        assert said in str(raised.value)
        assert store.storages() == (0, {})
