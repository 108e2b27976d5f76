"""Replication between a broker and the coordinator, in scenes that random worlds reach seldom."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

import httpx
import pytest
from support.broker.subscriber_world import LEASE_S, Node, World

from newsstand.broker.sessions.state import Adopt, Change, Forget, Merge
from newsstand.broker.sessions.subscribers import SubscriberMoved, durability
from newsstand.errors import NewsstandError
from newsstand.wire.subscribers import SubscriberRecord


@pytest.fixture
def world() -> Iterator[World]:
    """Return brokers `a` and `b`, and `ann` at `a`, whom the coordinator knows."""
    made = World()
    made.begin()
    made.kill_broker("c")
    made.pass_time(1.0, beats=True)
    yield made
    made.teardown()


def broker_of(world: World, name: str) -> SubscriberRecord:
    record = world.run(world.nodes[name].members.find("ann", fresh=True))
    assert record is not None
    return record


def stored(world: World) -> set[str]:
    """The subscriptions that the coordinator has."""
    found = world.store.records(["ann"])["ann"].subscriptions
    return set(found)


def acknowledged_at(world: World, node: Node, position: int) -> str:
    """Acknowledge `x`, and return where the answer says that this is durable."""

    async def ask() -> str:
        durability.set("broker")
        await node.members.acknowledge("ann", {"x": position})
        return durability.get()

    return world.run(ask())


def unsent_at_a(world: World) -> None:
    """Subscribe to `x` at `a`, which the coordinator does not hear of, and to `y` at `b` afterwards."""
    world.connect("a", "cut")
    world.subscribe("a", "ann", "x")
    world.subscribe("b", "ann", "y")
    world.beat("b")
    world.connect("a", "up")
    assert stored(world) == {"y"}


def test_durability_is_replicated_right_after_registration(world: World) -> None:
    world.subscribe("a", "ann", "x")
    assert acknowledged_at(world, world.nodes["a"], 0) == "replicated"
    world.kill_broker("a")
    world.start_broker("a")
    assert acknowledged_at(world, world.nodes["a"], 0) == "replicated"


def test_durability_is_replicated_only_if_the_coordinator_has_the_change(world: World) -> None:
    world.subscribe("a", "ann", "x")
    world.connect("a", "cut")
    assert acknowledged_at(world, world.nodes["a"], 0) == "broker", "it was tried"
    assert acknowledged_at(world, world.nodes["a"], 0) == "broker", "it was not tried again"


def test_unsent_changes_are_sent_later(world: World) -> None:
    world.connect("a", "cut")
    world.subscribe("a", "ann", "x")
    with pytest.raises(NewsstandError):
        world.run(world.nodes["a"].coordinator.changes.flush())
    world.connect("a", "up")
    world.beat("a")
    world.run(world.nodes["a"].coordinator.changes.flush())
    assert stored(world) == {"x"}


def test_change_answered_only_after_it_is_on_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.subscribe("a", "ann", "x")
    node = world.nodes["a"]

    def write(changes: Sequence[Change]) -> None:
        raise OSError("the disk")

    with monkeypatch.context() as faulty:
        faulty.setattr(node.store, "write", write)
        with pytest.raises(OSError, match="the disk"):
            world.run(node.members.acknowledge("ann", {"x": 7}))
    assert broker_of(world, "a").subscriptions["x"].acked < 7


def test_returned_subscriber_is_not_answered_from_its_old_record(world: World) -> None:
    world.subscribe("b", "ann", "y")
    world.coordinator.set_draining("b", True)
    assert world.store.owners(["ann"])["ann"][0] == "a"
    assert "y" in broker_of(world, "a").subscriptions, "`a` has not heard of either move"


def test_change_rejected_at_a_former_broker(world: World) -> None:
    world.subscribe("a", "ann", "x")
    world.subscribe("b", "ann", "y")  # `b` has not confirmed: `a` still follows the streams
    with pytest.raises(SubscriberMoved):
        acknowledged_at(world, world.nodes["a"], 0)
    assert broker_of(world, "a").subscriptions.keys() == {"x", "y"}


def test_subscription_created_again_when_only_the_old_record_has_it(world: World) -> None:
    world.subscribe("a", "ann", "x")
    world.unsubscribe("b", "ann", "x")  # `b` has not confirmed: `a` still follows the streams
    node = world.nodes["a"]
    with pytest.raises(SubscriberMoved):
        acknowledged_at(world, node, 0)
    with pytest.raises(SubscriberMoved):
        world.run(node.members.subscribe("ann", "x", "near", [], 0))


def test_returning_subscriber_finds_unsent_changes(world: World) -> None:
    unsent_at_a(world)
    world.beat("a")
    assert "ann" not in world.nodes["a"].members.records, (
        "`a` was notified of the move and has released the record"
    )
    assert broker_of(world, "a").subscriptions.keys() == {"x", "y"}


def test_reassigned_subscriber_finds_unsent_changes(world: World) -> None:
    unsent_at_a(world)
    world.beat("a")
    world.coordinator.set_draining("b", True)
    world.beat("a")
    assert world.nodes["a"].members.records["ann"].subscriptions.keys() == {"x", "y"}


def test_leaving_broker_sends_its_changes_first(world: World) -> None:
    world.connect("a", "cut")
    world.subscribe("a", "ann", "x")
    world.connect("a", "up")
    assert world.run(world.nodes["a"].coordinator.leave()) == 1
    assert stored(world) == {"x"}


def test_handover_confirmed_only_after_the_record_is_on_disk(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = world.nodes["b"]
    write = node.store.write

    def without_room(changes: Sequence[Change]) -> None:
        if any(isinstance(change, Adopt) for change in changes):
            raise NewsstandError("the disk is full")
        write(changes)

    with monkeypatch.context() as faulty:
        faulty.setattr(node.store, "write", without_room)
        with pytest.raises(NewsstandError, match="the disk is full"):
            broker_of(world, "b")
        world.beat("b")
    world.beat("a")
    assert "ann" in world.nodes["a"].members.records, "nobody else has the record"
    assert "ann" in world.store.handovers("b", "adopt", 9)


def test_released_record_is_absent_after_a_restart(world: World) -> None:
    world.subscribe("b", "ann", "y")
    world.beat("b")
    world.beat("a")
    world.connect("a", "cut")
    world.kill_broker("a")
    world.kill_coordinator()
    world.start_broker("a")
    assert "ann" not in world.nodes["a"].members.records


def test_lease_begins_when_the_heartbeat_was_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = world.ask_coordinator

    async def slowly(request: httpx.Request) -> httpx.Response:
        answer = await ask(request)
        world.now += LEASE_S - 1
        return answer

    with monkeypatch.context() as slow:
        slow.setattr(world, "ask_coordinator", slowly)
        world.beat("a")
    assert world.nodes["a"].coordinator.lease is not None
    world.now += 1.5
    assert world.nodes["a"].coordinator.lease is None


def test_subscription_dropped_without_the_coordinator_stays_dropped_after_a_restart(world: World) -> None:
    world.subscribe("a", "ann", "x")
    world.connect("a", "cut")
    world.unsubscribe("a", "ann", "x")
    world.kill_broker("a")
    assert stored(world) == {"x"}, "the coordinator has not heard of it"
    world.start_broker("a")
    assert stored(world) == set()
    assert not broker_of(world, "a").subscriptions


def test_change_at_the_current_broker_wins_over_late_ones(world: World) -> None:
    world.connect("a", "cut")
    for _ in range(3):
        world.subscribe("a", "ann", "x")
        world.unsubscribe("a", "ann", "x")
    world.subscribe("b", "ann", "x")
    world.beat("b")
    world.connect("a", "up")
    world.run(world.nodes["a"].coordinator.changes.flush())
    assert stored(world) == {"x"}
    assert broker_of(world, "b").subscriptions.keys() == {"x"}


@pytest.mark.parametrize("folder", ["lost", "older"])
def test_subscriptions_of_a_broker_with_a_new_data_folder_are_accepted(world: World, folder: str) -> None:
    """Versions go on where the coordinator's end, also those of subscriptions that are not there any more."""
    file = Path(world.folder.name) / "a.sqlite"
    world.kill_broker("a")
    copy = file.read_bytes()
    world.start_broker("a")
    for _ in range(3):
        world.subscribe("a", "ann", "x")
        world.unsubscribe("a", "ann", "x")
    world.kill_broker("a")
    file.unlink()
    if folder == "older":
        file.write_bytes(copy)
    world.start_broker("a")
    world.subscribe("a", "ann", "x")
    assert stored(world) == {"x"}


def test_returning_broker_answers_no_moved_subscriber(world: World) -> None:
    world.subscribe("a", "ann", "x")
    world.kill_broker("a")
    world.unsubscribe("b", "ann", "x")
    world.look("b", "ann")
    world.start_broker("a")  # `b` has not confirmed: `a` goes on with the streams
    world.kill_coordinator()
    with pytest.raises(NewsstandError):
        broker_of(world, "a")


def test_release_retried_after_a_disk_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.subscribe("b", "ann", "y")
    world.beat("b")
    node = world.nodes["a"]
    write = node.store.write

    def without_room(changes: Sequence[Change]) -> None:
        if any(isinstance(change, Forget) for change in changes):
            raise NewsstandError("the disk is full")
        write(changes)

    with monkeypatch.context() as faulty:
        faulty.setattr(node.store, "write", without_room)
        for _ in range(2):
            world.beat("a")
    assert "ann" in node.members.records
    for _ in range(2):
        world.beat("a")
    assert "ann" not in node.members.records


def test_returning_subscriber_answered_only_after_synchronization(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.subscribe("b", "ann", "y")
    node = world.nodes["a"]
    write = node.store.write
    begun, may_end = Event(), Event()

    def slowly(changes: Sequence[Change]) -> None:
        if any(isinstance(change, Merge) for change in changes):
            begun.set()
            assert may_end.wait(30)
        write(changes)

    async def ask_twice() -> SubscriberRecord | BaseException | None:
        first = asyncio.create_task(node.members.find("ann", fresh=True))
        assert await asyncio.to_thread(begun.wait, 30)
        world.connect("a", "cut")  # what `a` knows of her cannot be checked
        second = asyncio.create_task(node.members.find("ann"))
        await asyncio.wait([second], timeout=0.1)
        answered = second.done()
        may_end.set()
        found, _ = await asyncio.gather(first, second, return_exceptions=True)
        assert not answered, "from before she was at `b`"
        return found

    with monkeypatch.context() as slow:
        slow.setattr(node.store, "write", slowly)
        found = world.run(ask_twice())
    assert isinstance(found, SubscriberRecord)
    assert "y" in found.subscriptions
