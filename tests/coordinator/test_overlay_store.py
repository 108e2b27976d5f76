"""The overlay in the coordinator's store: restarts, older stores, full disks."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.coordinator.coordinators import LEASE_S, broker, coordinating, coordinator_over, live, report

from newsstand.coordinator.model import BrokerRecord, OverlayTree, StorageSet
from newsstand.coordinator.store.sqlite import CoordinatorStore
from newsstand.errors import BadInput, NoRoom


def test_tree_is_stored_completely(tmp_path: Path) -> None:
    store = CoordinatorStore(tmp_path / "store")
    assert store.tree() == OverlayTree()
    store.put_tree(OverlayTree(3, frozenset({("a", "b"), ("b", "c")})))
    store.put_tree(tree := OverlayTree(4, frozenset({("a", "c")})))
    assert store.tree() == tree
    store.close()
    again = CoordinatorStore(tmp_path / "store")
    assert again.tree() == tree
    again.close()


def test_storages_are_stored_by_topic(tmp_path: Path) -> None:
    store = CoordinatorStore(tmp_path / "store")
    assert store.storages() == (0, {})
    news, sport = StorageSet(frozenset("ab"), frozenset("c")), StorageSet(frozenset("a"))
    store.put_storages(1, {"news": news, "sport": sport, "art": sport})
    store.put_storages(2, {"sport": StorageSet(frozenset(), frozenset("a")), "art": StorageSet(frozenset())})
    store.close()
    again = CoordinatorStore(tmp_path / "store")
    assert again.storages() == (2, {"news": news, "sport": StorageSet(frozenset(), frozenset("a"))})
    again.close()


def test_dead_broker_leaves_lists_of_neighbours_at_next_heartbeat(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, _):
        for name in ("harbour", "south", "core"):
            coordinator.register(broker(name), 0)
        duties = coordinator.heartbeat("south", report(), 0).overlay
        assert [(one.name, one.url) for one in duties.links] == [
            ("core", "http://core:8790"),
            ("harbour", "http://harbour:8790"),
        ]
        coordinator.set_draining("core", True)
        assert coordinator.heartbeat("south", report(), 0).overlay == duties, "maintenance changes nothing"
        now = live(coordinator, LEASE_S + 0.5, "south", "core")
        after = coordinator.heartbeat("south", report(), now).overlay
        assert [one.name for one in after.links] == ["core"]
        assert after.version == duties.version + 1


def test_neighbours_learn_new_address_of_broker(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, _):
        coordinator.register(broker("a"), 0)
        coordinator.register(broker("b"), 0)
        before = coordinator.overlay.duties_of("a")
        coordinator.register(broker("b"), 1)
        assert coordinator.overlay.duties_of("a") == before
        coordinator.register(BrokerRecord("b", "http://elsewhere:1"), 1)
        after = coordinator.overlay.duties_of("a")
        assert (after.version, after.links[0].url) == (before.version + 1, "http://elsewhere:1")


def test_tree_rejected_by_disk_is_repaired_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with coordinating(tmp_path) as (coordinator, store):
        for name in ("a", "b", "c"):
            coordinator.register(broker(name), 0)

        def full(_: OverlayTree) -> None:
            raise NoRoom("no room left on the disk")

        with monkeypatch.context() as patched:
            patched.setattr(store, "put_tree", full)
            with pytest.raises(NoRoom):
                coordinator.leave("a")
        assert coordinator.heartbeat("b", report(), 1).overlay.links == []
        coordinator.tick(1)
        assert store.tree().links == {("b", "c")}


def test_topic_in_transit_survives_restart(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, store):
        for name in ("a", "b"):
            coordinator.register(broker(name), 0)
        coordinator.overlay.place({"news": ["a"]})
        coordinator.heartbeat("a", report(stored=["news"]), 0)
        coordinator.overlay.place({"news": ["b"]})
        again = coordinator_over(store)
        assert again.overlay.storages() == {"news": {"wanted": ["b"], "complete": [], "leaving": ["a"]}}
        assert again.heartbeat("a", report(stored=["news"]), 1).overlay.storage.topics == ["news"]
        again.heartbeat("b", report(stored=["news"]), 1)
        assert again.heartbeat("a", report(stored=["news"]), 1).overlay.storage.topics == []
        assert store.storages()[1] == {"news": StorageSet(frozenset("b"))}


def test_returning_broker_regains_its_topics(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, _):
        for name in ("a", "b"):
            coordinator.register(broker(name), 0)
        coordinator.overlay.place({"news": ["a"]})
        coordinator.leave("a")
        assert coordinator.overlay.progress() == {"missing": 1}
        coordinator.register(broker("a"), 1)
        assert coordinator.overlay.duties_of("a").storage.topics == ["news"]


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ({"news": ["a", "ghost"], "sport": ["spook"]}, "brokers that are not registered: 'ghost', 'spook'"),
        ({"news": []}, "a topic needs at least one broker; leave it out to drop it: 'news'"),
        ({"news": ["a"], "a\nb": ["a"]}, r"a topic is 1 to 256 characters without control characters: 'a\nb'"),
        ({"news": list("ghijklm")}, "'g', 'h', 'i', 'j', 'k' and 2 more"),
    ],
)
def test_assignment_with_mistake_changes_nothing(
    tmp_path: Path, assignment: dict[str, list[str]], said: str
) -> None:
    with coordinating(tmp_path) as (coordinator, store):
        coordinator.register(broker("a"), 0)
        with pytest.raises(BadInput) as raised:
            coordinator.overlay.place(assignment)
        assert said in str(raised.value)
        assert store.storages() == (0, {})
