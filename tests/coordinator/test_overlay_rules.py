"""Whatever brokers and the coordinator do: the tree spans those that live, and everybody is told the same."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coordinating import LEASE_S, coordinator_over
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from test_tree import degrees, is_tree

from newsstand.coordinator.records import BrokerRecord, Link
from newsstand.coordinator.standing import OverlayTold, Report
from newsstand.coordinator.store_sqlite import SqliteStore
from newsstand.coordinator.tree import DEFAULT_DEGREE, neighbours
from newsstand.planning.places import Place

NAMES = ("a", "b", "c", "d", "e", "f", "g")
TOPICS = ("news", "sport")
NODES = ("core", "north", "south", "harbour", None)
brokers = st.sampled_from(NAMES)
placements = st.fixed_dictionaries({topic: st.sets(brokers, min_size=1, max_size=3) for topic in TOPICS})


@dataclass
class Edge:
    """A broker as it should be: its topics, and whether it has each of them whole."""

    whole: dict[str, bool] = field(default_factory=dict)

    @property
    def stored(self) -> list[str]:
        return [topic for topic, whole in self.whole.items() if whole]

    def do(self, told: OverlayTold) -> set[str]:
        """Begin what is new, and drop the rest; what it had whole and has no longer."""
        dropped = set(self.stored).difference(told.storage.topics)
        self.whole = {topic: self.whole.get(topic, False) for topic in told.storage.topics}
        return dropped


class Overlays(RuleBasedStateMachine):
    """Brokers come, go, die and come back; topics are placed anew at any time; answers get lost."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.now = 0.0
        self.edges: dict[str, Edge] = {}
        self.alive: set[str] = set()
        self.urls: dict[str, str] = {}
        self.told: dict[tuple[str, int], object] = {}
        self.open()
        self.links: Collection[Link] = ()

    def open(self) -> None:
        self.store = SqliteStore(Path(self.folder.name) / "coordinator.sqlite")
        self.store._connection.execute("PRAGMA synchronous = OFF")
        self.coordinator = coordinator_over(self.store, now=self.now)

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def obey(self, name: str, told: OverlayTold) -> None:
        for topic in self.edges[name].do(told):
            wanted = set(self.coordinator.overlay.storages()[topic]["wanted"]) & self.alive
            assert wanted, "nobody who lives is to have it"
            assert all(topic in self.edges[one].stored for one in wanted), "somebody does not have it yet"

    @rule(name=brokers, node=st.sampled_from(NODES), port=st.integers(1, 2))
    def register(self, name: str, node: str | None, port: int) -> None:
        self.urls[name] = f"http://{name}:{port}"
        self.coordinator.register(BrokerRecord(name, self.urls[name], Place(node=node)), self.now)
        self.alive.add(name)
        self.edges.setdefault(name, Edge())
        self.obey(name, self.coordinator.overlay.tell(name))

    @rule(name=brokers, heard=st.booleans())
    def beat(self, name: str, heard: bool) -> None:
        if name in self.alive:
            told = self.coordinator.heartbeat(name, Report(0, 0, stored=self.edges[name].stored), self.now).overlay
            if heard:
                self.obey(name, told)

    @rule(name=brokers)
    def copy(self, name: str) -> None:
        """What a broker keeps becomes whole."""
        if name in self.alive:
            self.edges[name].whole = dict.fromkeys(self.edges[name].whole, True)

    @rule(name=brokers, leaves=st.booleans())
    def die(self, name: str, leaves: bool) -> None:
        if name in self.alive:
            self.alive.discard(name)
            if leaves:
                self.coordinator.leave(name)
            else:
                self.pass_a_lease()

    def pass_a_lease(self) -> None:
        for _ in range(4):
            self.now += LEASE_S / 3
            for name in self.alive:
                self.coordinator.register(self.record(name), self.now)
            self.coordinator.tick(self.now)

    def record(self, name: str) -> BrokerRecord:
        (found,) = [one.record for one in self.coordinator.brokers() if one.name == name]
        return found

    @rule(name=brokers, drains=st.booleans())
    def maintain(self, name: str, drains: bool) -> None:
        if name in self.alive:
            (self.coordinator.drain if drains else self.coordinator.resume)(name)

    @rule(assignment=placements)
    def place(self, assignment: Mapping[str, set[str]]) -> None:
        known = {one.name for one in self.coordinator.brokers()}
        wanted = {topic: names & known for topic, names in assignment.items()}
        if all(wanted.values()):
            self.coordinator.overlay.want(wanted)

    @rule()
    def restart(self) -> None:
        before = self.coordinator.overlay
        self.store.close()
        self.open()
        after = self.coordinator.overlay
        assert after.tree == before.tree
        assert after.brokers() == before.brokers()
        for name in NAMES:
            assert after.tell(name) == before.tell(name)

    @invariant()
    def it_is_a_tree_over_those_that_live(self) -> None:
        overlay = self.coordinator.overlay
        links = overlay.tree.links
        assert overlay.brokers() == sorted(self.alive)
        assert is_tree(links, self.alive)
        assert max(degrees(links).values(), default=0) <= DEFAULT_DEGREE
        assert links >= {link for link in self.links if set(link) <= self.alive}
        self.links = links

    @invariant()
    def brokers_are_told_the_tree_and_a_version_means_one_thing(self) -> None:
        for name in self.alive:
            told = self.coordinator.overlay.tell(name)
            linked = neighbours(self.coordinator.overlay.tree.links, name)
            assert [(one.name, one.url) for one in told.links] == [(one, self.urls[one]) for one in linked]
            assert self.told.setdefault((f"{name} links", told.version), told.links) == told.links
            assert self.told.setdefault((f"{name} topics", told.storage.version), told.storage) == told.storage

    @invariant()
    def nobody_is_said_to_have_what_it_has_not(self) -> None:
        for topic, storages in self.coordinator.overlay.storages().items():
            assert all(topic in self.edges[name].stored for name in storages["complete"])
            assert self.alive.issuperset(storages["complete"])


Overlays.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None, derandomize=True)
TestOverlays = Overlays.TestCase
