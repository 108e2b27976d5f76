"""Brokers restart, stop and are killed while clients read: no result is lost, repeated or out of order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from support.broker.press import Press
from support.broker.process import Process, start_broker, start_coordinator, wait_ready
from support.client.crowd import enrol, readers, until_all_have
from support.client.results import PASSWORD, QUICK, a_client, a_name, print_numbers, standing, take

from newsstand.client import Client, new_http


def run(work) -> None:  # type: ignore[no-untyped-def]
    asyncio.run(asyncio.wait_for(work, 90))


def test_client_finds_restarted_broker(press: Press, tmp_path: Path) -> None:
    begun = start_broker(tmp_path, press.url)
    wait_ready(begun.url)
    port = int(begun.url.rpartition(":")[2])
    again: list[Process] = []

    async def work() -> None:
        async with a_client(begun.url) as client:
            subscription = await client.subscribe("of_kind", "restart")
            print_numbers(press, "restart", 1, 3)
            async with aclosing(client.results(subscription)) as results:
                taken = await take(results, 3)
                begun.kill()
                print_numbers(press, "restart", 4, 6)
                again.append(start_broker(tmp_path, press.url, "edge", port))
                taken += await take(results, 3, patience=30)
                print_numbers(press, "restart", 7, 7)
                taken += await take(results, 1)
            assert [one.position for one in taken] == [1, 2, 3, 4, 5, 6, 7]
            assert (await standing(client, subscription)).position == 6

    try:
        run(work())
    finally:
        for process in (begun, *again):
            process.kill()


class Platform:
    """A coordinator and two brokers."""

    def __init__(self, press: Press, folder: Path) -> None:
        self._press, self._folder = press, folder
        self.data = folder / "coordinator"
        self.coordinator = start_coordinator(self.data)
        self.brokers = {name: self._start(name) for name in ("north", "south")}
        self.wait_ready()

    def start_again(self, name: str) -> None:
        self.brokers[name] = self._start(name)
        self.wait_ready()

    def wait_ready(self) -> None:
        for broker in self.brokers.values():
            wait_ready(broker.url)
        time.sleep(0.3)  # until the coordinator knows them, too

    def close(self) -> None:
        for process in (self.coordinator, *self.brokers.values()):
            process.kill()

    def _start(self, name: str) -> Process:
        url = self._press.url
        return start_broker(self._folder / name, url, name, 0, "--coordinator", self.coordinator.url)


@pytest.fixture(scope="module")
def platform(press: Press, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    made = Platform(press, tmp_path_factory.mktemp("platform"))
    yield made
    made.close()


def test_fifty_readers_survive_a_killed_broker(press: Press, platform: Platform) -> None:
    async def work() -> None:
        coordinator = platform.coordinator.url
        tokens = enrol(coordinator, platform.data, "north", [f"n{number}" for number in range(50)])
        async with new_http() as http:
            everybody = readers(coordinator, tokens, 10, http, QUICK)
            await asyncio.gather(*(one.enter() for one in everybody))
            reading = [asyncio.create_task(one.read()) for one in everybody]
            every = [{"channel": "of_kind", "values": [f"k{kind}"], "payload": {"id": "x"}} for kind in range(10)]
            for number in range(40):
                await asyncio.to_thread(press.print, every)
                if number == 15:
                    platform.brokers["north"].kill()
                await asyncio.sleep(0.02)
            await until_all_have(everybody, 40, 40)
            await asyncio.gather(*(one.client.close() for one in everybody))
            await asyncio.gather(*reading)
            async with Client(coordinator, tokens=tokens[0], http=http) as client:
                (kept,) = await client.subscriptions()
                assert kept.broker == platform.brokers["south"].url
                assert kept.position >= 39

    run(work())


def test_readers_move_from_a_stopping_broker(press: Press, platform: Platform) -> None:
    async def work() -> None:
        platform.start_again("north")
        async with Client(platform.coordinator.url, a_name(), PASSWORD, register=True, pace=QUICK) as client:
            subscription = await client.subscribe("of_kind", "stopping")
            first = {broker.url: broker for broker in platform.brokers.values()}[subscription.broker]
            print_numbers(press, "stopping", 1, 2)
            async with aclosing(client.results(subscription)) as results:
                taken = await take(results, 2)
                await asyncio.to_thread(first.stop)
                print_numbers(press, "stopping", 3, 4)
                taken += await take(results, 2)
                platform.coordinator.kill()  # brokers go on without it, and so do clients
                print_numbers(press, "stopping", 5, 5)
                taken += await take(results, 1)
            assert [one.position for one in taken] == [1, 2, 3, 4, 5]
            now = await standing(client, subscription)
            assert now.broker != subscription.broker
            assert now.position == 4

    run(work())
