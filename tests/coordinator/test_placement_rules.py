"""In any order of assignments, reports, losses and restarts, no topic is dropped before it has arrived."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.profiles import examples

from newsstand.coordinator.placement import TopicPlacement

BROKERS = ("a", "b", "c")
brokers = st.sampled_from(BROKERS)


class Moving(RuleBasedStateMachine):
    """One topic, that is wanted here and there; brokers live all the time, and answers to them may be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.placement = TopicPlacement()
        self.keeps: dict[str, bool] = {}
        """The brokers that keep the topic, and whether they have it whole."""
        self.alive = set(BROKERS)
        self.was_kept = False

    @rule(wanted=st.sets(brokers, min_size=1, max_size=2))
    def want(self, wanted: set[str]) -> None:
        if changes := self.placement.changes_for({"news": wanted}, self.alive, BROKERS):
            self.placement.change(changes)

    @rule(name=brokers, heard=st.sampled_from([True, True, False]))
    def beat(self, name: str, heard: bool) -> None:
        if name not in self.alive:
            return
        self.placement.report(name, ["news"] if self.keeps.get(name) else [])
        if changes := self.placement.releases_of(name, self.alive):
            self.placement.change(changes)
        if heard and self.placement.topics_of(name):
            self.keeps.setdefault(name, False)
        elif heard and self.keeps.pop(name, False):
            wanted = self.placement.topics()["news"].wanted & self.alive
            assert wanted, "nobody who lives is to have it"
            assert all(self.keeps.get(one) for one in wanted), "somebody does not have it yet"

    @rule(name=brokers)
    def copy(self, name: str) -> None:
        """A broker has all that another one has, or all that there is if nobody has anything."""
        if name in self.alive and name in self.keeps:
            self.keeps[name] = self.was_kept = True

    @rule()
    def arrive(self) -> None:
        """Time enough to begin, to tell of it, and to drop."""
        for name in BROKERS * 3:
            self.beat(name, heard=True)
            self.copy(name)

    @rule()
    def restart(self) -> None:
        self.placement = TopicPlacement(self.placement.version, self.placement.topics())

    @invariant()
    def nobody_is_said_to_have_what_it_has_not(self) -> None:
        for topic in self.placement.topics():
            assert all(self.keeps.get(name) and name in self.alive for name in self.placement.complete(topic))

    @invariant()
    def somebody_has_what_anybody_ever_had(self) -> None:
        assert any(self.keeps.values()) or not self.was_kept


class Dying(Moving):
    """The same with brokers that die, lose what was not copied to others, and come back."""

    @rule(name=brokers, loses=st.booleans())
    def die(self, name: str, loses: bool) -> None:
        self.alive.discard(name)
        self.placement.retain_reports(self.alive)
        if loses and self.keeps.pop(name, False):
            self.was_kept = any(self.keeps.values())

    @rule(name=brokers)
    def come_back(self, name: str) -> None:
        self.placement.drop_reports(name)
        self.alive.add(name)


STEPS = settings(max_examples=examples(150), stateful_step_count=30, derandomize=True)
Moving.TestCase.settings = STEPS
Dying.TestCase.settings = STEPS
TestMoving = Moving.TestCase
TestDying = Dying.TestCase
