"""Checks of subscribers' records by a broker without a lease, or with a new one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from support.broker.subscriber_world import LEASE_S, World

from newsstand.auth.tokens import BadToken
from newsstand.broker.coordinator_client.client import NotRegistered


@pytest.fixture
def world() -> Iterator[World]:
    """Brokers with leases, and `ann`, at home at `a`."""
    made = World()
    made.begin()
    made.pass_time(1.0, beats=True)
    yield made
    made.teardown()


def lose_lease(world: World) -> None:
    """Stop `a` for longer than its lease; the coordinator was away, and therefore does not count it as dead."""
    world.kill_coordinator()
    world.pass_time(LEASE_S + 1, beats=False)
    world.restart_coordinator()
    world.beat("b")


def log_in(world: World) -> str:
    """Begin a session at `a`."""
    world.log_in("a", "ann")
    (access,) = world.begun
    return access


def end_session_at_b(world: World, access: str) -> None:
    """End a session at `b`, which becomes the subscriber's home."""

    async def end() -> None:
        member = await world.nodes["b"].members.authenticate(access)
        await world.nodes["b"].accounts.end_sessions("ann", [member.claims.session])

    world.run(end())
    del world.begun[access]
    world.ended[access] = True


def admit_at_a(world: World, access: str) -> None:
    world.run(world.nodes["a"].members.authenticate(access))


def test_check_without_a_lease_is_valid_once(world: World) -> None:
    access = log_in(world)
    lose_lease(world)
    admit_at_a(world, access)
    end_session_at_b(world, access)
    with pytest.raises(BadToken):
        admit_at_a(world, access)


def test_check_without_a_lease_is_invalid_after_a_pause(world: World) -> None:
    access = log_in(world)
    lose_lease(world)
    admit_at_a(world, access)
    for _ in range(5):  # the coordinator moves the subscriber, while `a` is stopped again
        world.pass_time(1.0, beats=False)
        world.beat("b")
    end_session_at_b(world, access)
    with pytest.raises(NotRegistered):
        admit_at_a(world, access)


def test_check_without_a_lease_is_invalid_in_the_next_lease(world: World) -> None:
    access = log_in(world)
    lose_lease(world)
    admit_at_a(world, access)
    end_session_at_b(world, access)
    world.beat("a")  # `b` has not confirmed, so that `a` is not notified of the move
    with pytest.raises(BadToken):
        admit_at_a(world, access)


def test_unchecked_record_is_checked_without_a_lease(world: World) -> None:
    access = log_in(world)
    world.kill_broker("a")
    world.start_broker("a")
    lose_lease(world)
    end_session_at_b(world, access)
    with pytest.raises(BadToken):
        admit_at_a(world, access)


def test_check_with_a_lease_is_valid_for_the_lease(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    access = log_in(world)
    checks = 0
    ask = world.ask_coordinator

    async def counted(request: httpx.Request) -> httpx.Response:
        nonlocal checks
        checks += request.url.path.endswith("/stale")
        return await ask(request)

    monkeypatch.setattr(world, "ask_coordinator", counted)
    for _ in range(2):
        admit_at_a(world, access)
        world.pass_time(LEASE_S + 1, beats=True)
    assert checks <= 1
    lose_lease(world)
    world.beat("a")
    checks = 0
    for _ in range(2):
        admit_at_a(world, access)
        world.pass_time(LEASE_S + 1, beats=True)
    assert checks == 1


def test_subscriber_is_confirmed_once_in_each_lease(world: World) -> None:
    members = world.nodes["a"].members
    admit_at_a(world, access := log_in(world))
    assert members.lease_of("ann") == members.lease
    assert members.lease_of("nobody") != members.lease
    lose_lease(world)
    assert members.lease is None
    assert members.lease_of("ann") is not None
    assert members.lease_of("nobody") is None
    world.beat("a")
    assert members.lease_of("ann") != members.lease
    admit_at_a(world, access)
    assert members.lease_of("ann") == members.lease


def test_stale_check_answered_when_the_record_is_synchronized_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_broker = world.nodes["a"].coordinator
    epoch = world.nodes["a"].members.records["ann"].epoch
    ask = world.ask_coordinator

    async def story() -> list[bool | None]:
        arrived, go_on = asyncio.Event(), asyncio.Event()

        async def held(request: httpx.Request) -> httpx.Response:
            arrived.set()
            await go_on.wait()
            return await ask(request)

        monkeypatch.setattr(world, "ask_coordinator", held)
        checks = [asyncio.create_task(other_broker.is_stale("ann", epoch))]
        await arrived.wait()
        for known in (epoch - 1, epoch):
            checks.append(asyncio.create_task(other_broker.is_stale("ann", known)))
            await asyncio.sleep(0)
        go_on.set()
        async with asyncio.timeout(30):
            return await asyncio.gather(*checks)

    assert world.run(story()) == [False, True, False]


def test_stale_check_repeated_when_it_was_about_an_earlier_record(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = world.nodes["a"]
    record = node.members.records["ann"]
    epoch = record.epoch
    asked: list[int] = []

    async def is_stale(name: str, known: int) -> bool:
        asked.append(known)
        record.epoch = epoch + 1  # the coordinator's record has come meanwhile
        return known == epoch

    with monkeypatch.context() as patched:
        patched.setattr(node.coordinator, "is_stale", is_stale)
        assert world.run(node.members.find("ann", fresh=True)) is record
    record.epoch = epoch
    assert asked == [epoch, epoch + 1]
