"""In any order of events, the tree spans the live brokers and is the same for all."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.coordinator.coordinators import LEASE_S, coordinator_over
from support.coordinator.trees import degrees, is_tree
from support.profiles import examples

from newsstand.coordinator.model import BrokerRecord, Link
from newsstand.coordinator.overlay import DEFAULT_DEGREE, neighbours
from newsstand.coordinator.store.sqlite import CoordinatorStore
from newsstand.geo.location import Location
from newsstand.wire.coordination import HeartbeatRequest, OverlayDuties

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

    def do(self, duties: OverlayDuties) -> set[str]:
        """Begin what is new, and drop the rest; what it had whole and has no longer."""
        dropped = set(self.stored).difference(duties.storage.topics)
        self.whole = {topic: self.whole.get(topic, False) for topic in duties.storage.topics}
        return dropped


class Overlays(RuleBasedStateMachine):
    """Brokers come, go, die and come back; topics are placed again at any time; answers get lost."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.now = 0.0
        self.edges: dict[str, Edge] = {}
        self.alive: set[str] = set()
        self.urls: dict[str, str] = {}
        self.seen: dict[tuple[str, int], object] = {}
        self.open()
        self.links: Collection[Link] = ()

    def open(self) -> None:
        self.store = CoordinatorStore(
            Path(self.folder.name) / "coordinator.sqlite", pragmas={"synchronous": "OFF"}
        )
        self.coordinator = coordinator_over(self.store, now=self.now)

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def obey(self, name: str, duties: OverlayDuties) -> None:
        for topic in self.edges[name].do(duties):
            wanted = set(self.coordinator.overlay.storages()[topic]["wanted"]) & self.alive
            assert wanted, "nobody who lives is to have it"
            assert all(topic in self.edges[one].stored for one in wanted), "somebody does not have it yet"

    @rule(name=brokers, node=st.sampled_from(NODES), port=st.integers(1, 2))
    def register(self, name: str, node: str | None, port: int) -> None:
        self.urls[name] = f"http://{name}:{port}"
        self.coordinator.register(BrokerRecord(name, self.urls[name], Location(node=node)), self.now)
        self.alive.add(name)
        self.edges.setdefault(name, Edge())
        self.obey(name, self.coordinator.overlay.duties_of(name))

    @rule(name=brokers, heard=st.booleans())
    def beat(self, name: str, heard: bool) -> None:
        if name in self.alive:
            duties = self.coordinator.heartbeat(
                name, HeartbeatRequest(0, 0, stored=self.edges[name].stored), self.now
            ).overlay
            if heard:
                self.obey(name, duties)

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
            self.coordinator.set_draining(name, drains)

    @rule(assignment=placements)
    def place(self, assignment: Mapping[str, set[str]]) -> None:
        known = {one.name for one in self.coordinator.brokers()}
        wanted = {topic: names & known for topic, names in assignment.items()}
        if all(wanted.values()):
            self.coordinator.overlay.place(wanted)

    @rule()
    def restart(self) -> None:
        before = self.coordinator.overlay
        self.store.close()
        self.open()
        after = self.coordinator.overlay
        assert after.tree == before.tree
        assert after.brokers() == before.brokers()
        for name in NAMES:
            assert after.duties_of(name) == before.duties_of(name)

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
    def duties_follow_the_tree_and_a_version_means_one_thing(self) -> None:
        for name in self.alive:
            duties = self.coordinator.overlay.duties_of(name)
            linked = neighbours(self.coordinator.overlay.tree.links, name)
            assert [(one.name, one.url) for one in duties.links] == [(one, self.urls[one]) for one in linked]
            assert self.seen.setdefault((f"{name} links", duties.version), duties.links) == duties.links
            assert (
                self.seen.setdefault((f"{name} topics", duties.storage.version), duties.storage) == duties.storage
            )

    @invariant()
    def nobody_is_said_to_have_what_it_has_not(self) -> None:
        for topic, storages in self.coordinator.overlay.storages().items():
            assert all(topic in self.edges[name].stored for name in storages["complete"])
            assert self.alive.issuperset(storages["complete"])


Overlays.TestCase.settings = settings(max_examples=examples(25), stateful_step_count=30, derandomize=True)
TestOverlays = Overlays.TestCase
