"""Brokers in different regions: the origin moves its popular pages towards the demand, end to end.

Real broker processes, a real coordinator and the cluster's own API; the demand comes over real sockets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.broker.press import ADMIN, APP, Press
from support.broker.process import NEWSSTAND, SECRET, Process, as_operator, broker_secrets, wait_ready
from support.broker.topic_world import PASSWORD, until

from newsstand.client import Client
from newsstand.geo.location import LinkGraph

LINKS = [
    ("newyork", "london"),
    ("london", "paris"),
    ("paris", "lisbon"),
    ("paris", "berlin"),
    ("newyork", "sanfrancisco"),
    ("sanfrancisco", "tokyo"),
]
NETWORK = LinkGraph(LINKS)
ORIGIN = "newyork"
KEEPING = ("newyork", "berlin", "tokyo")
"""Brokers that keep copies, each at the node of its name."""
WITHOUT = "lisbon"
"""A broker without room for copies."""
PAGES = ("front.html", "sport/today.html", "weather.html")
TABLE = ", ".join(f'["{one}", "{other}"]' for one, other in LINKS)
PUSH = f"""
[push]
enabled = true
threshold = 7
pages = 10
period = "2s"
caching = "nearest"
lookup = "nearest"
node = "{ORIGIN}"
links = [{TABLE}]
"""


def content(name: str, version: int) -> bytes:
    return f"{name}, version {version}. ".encode() * 100


class World:
    """A platform with brokers in distant regions."""

    def __init__(self, folder: Path) -> None:
        (folder / "press").mkdir()
        (folder / "press" / "newsstand.toml").write_text(APP + PUSH)
        self.press = Press(folder / "press")
        self.folder = folder
        self._serving = self.press.serving()
        self._serving.__enter__()
        self.cluster = httpx.Client(
            base_url=self.press.url,
            headers={"Authorization": f"Bearer {ADMIN}"},
            timeout=20,
            verify=False,
        )
        settings = folder / "coordinator.toml"
        settings.write_text(f"[coordinator]\nlinks = [{TABLE}]\nlease_s = 10\n")
        self.coordinator = Process(
            NEWSSTAND, "coordinator", "--config", settings, "--data", folder / "coordinator", "--port", 0,
            env={"NEWSSTAND_COORDINATOR_SECRET": SECRET},
        )  # fmt: skip
        self.brokers: dict[str, Process] = {}
        self.readers: dict[str, httpx.Client] = {}
        for name in (*KEEPING, WITHOUT):
            self.start(name)
        for name in self.brokers:
            wait_ready(self.brokers[name].url)
        for name in self.brokers:
            self.readers[name] = self._reader(name)

    def start(self, name: str) -> None:
        self.brokers[name] = Process(
            NEWSSTAND, "broker", "--name", name, "--cluster", self.press.url, "--data", self.folder / name,
            "--port", 0, "--coordinator", self.coordinator.url,
            env={
                **broker_secrets(name),
                "NEWSSTAND_BROKER_NODE": name,
                "NEWSSTAND_BROKER_PUSH_CACHE_BYTES": "0" if name == WITHOUT else "1000000",
            },
        )  # fmt: skip

    def _reader(self, broker: str) -> httpx.Client:
        http = httpx.Client(base_url=self.brokers[broker].url, timeout=20, verify=False)
        who = {"name": f"reader-{broker}", "password": PASSWORD}
        assert http.post("/subscribers", json=who).status_code == 201
        http.headers["Authorization"] = f"Bearer {http.post('/login', json=who).json()['access']}"
        return http

    def put(self, name: str, version: int) -> dict[str, object]:
        answer = self.cluster.put(
            f"/named/{name}", content=content(name, version), headers={"Content-Type": "text/html"}
        )
        return dict(answer.raise_for_status().json())

    def read(self, broker: str, name: str) -> httpx.Response:
        """Read a page as a client at the location of the broker."""
        answer = self.readers[broker].get(f"/named/{name}")
        assert answer.status_code == 200, answer.text
        return answer

    def round(self) -> tuple[float, int]:
        """Read all pages once from each region; return bytes times hops, and the requests at the origin."""
        before = self.cluster_metric("newsstand_origin_requests_total")
        traffic = 0.0
        for broker in self.readers:
            for name in PAGES:
                answer = self.read(broker, name)
                by = answer.headers["X-Served-By"]
                traffic += len(answer.content) * NETWORK.hops(broker, ORIGIN if by == "origin" else by)
        return traffic, int(self.cluster_metric("newsstand_origin_requests_total") - before)

    def cluster_metric(self, name: str) -> float:
        return _value(self.cluster.get("/metrics").text, name)

    def metric(self, broker: str, name: str) -> float:
        headers = {"Authorization": f"Bearer {as_operator(broker)}"}
        text = httpx.get(f"{self.brokers[broker].url}/metrics", headers=headers, verify=False).text
        return _value(text, f"newsstand_broker_{name}")

    def until_pushed(self) -> None:
        """Read until all brokers with a push-cache have the pages."""

        def everywhere() -> bool:
            without = [name for name in KEEPING if self.metric(name, "push_cache_pages") < len(PAGES)]
            for broker in without * 5:
                for name in PAGES:
                    self.read(broker, name)
            return not without

        until(everywhere, "the pages are near those who read them", patience=60)

    def stop(self) -> None:
        for http in (*self.readers.values(), self.cluster):
            http.close()
        for broker in self.brokers.values():
            broker.kill()
        self.coordinator.stop()
        self._serving.__exit__(None, None, None)


def _value(text: str, name: str) -> float:
    return sum(float(line.split()[1]) for line in text.splitlines() if line.split(" ")[0].split("{")[0] == name)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("regions"))
    try:
        for name in PAGES:
            made.put(name, 1)
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def before_and_after(world: World) -> tuple[tuple[float, int], tuple[float, int]]:
    """Return the costs of a round before the first push and of one after it."""
    before = world.round()
    world.until_pushed()
    return before, world.round()


def test_push_reduces_traffic_and_load_of_the_origin(
    before_and_after: tuple[tuple[float, int], tuple[float, int]],
) -> None:
    before, after = before_and_after
    size = sum(len(content(name, 1)) for name in PAGES)
    # At first all is fetched over 3 hops to Berlin, 2 to Tokyo and 3 to Lisbon; then over 2 hops to Lisbon.
    assert before == (size * (3 + 2 + 3), 4 * len(PAGES))
    assert after[0] <= size * 2
    assert after[1] <= before[1] / 4


def test_client_redirected_to_nearer_broker(
    world: World, before_and_after: tuple[tuple[float, int], tuple[float, int]]
) -> None:
    sent = world.metric(WITHOUT, "page_redirects_total")

    async def read() -> bytes:
        async with Client(world.coordinator.url, "lisa", PASSWORD, register=True, node=WITHOUT) as client:
            page = await client.named_page(PAGES[0])
            assert await client.named_page(PAGES[0], etag=page.etag) is None
            return page.content

    assert asyncio.run(read()) == content(PAGES[0], 1)
    assert world.metric(WITHOUT, "page_redirects_total") == sent + 2
    # One that does not go itself gets the same, by way of its own broker.
    answer = world.read(WITHOUT, PAGES[0])
    assert (answer.headers["X-Cache"], answer.headers["X-Served-By"]) == ("peer", "berlin")
    # A redirect is an address for anybody, for a while.
    asked = world.readers[WITHOUT].get(f"/named/{PAGES[0]}", headers={"Newsstand-Redirects": "yes"})
    assert (asked.status_code, asked.headers["Newsstand-Redirect"]) == (307, "berlin")
    assert httpx.get(asked.headers["Location"], verify=False).content == content(PAGES[0], 1)
    assert httpx.get(asked.headers["Location"] + "0", verify=False).status_code == 401


def test_changed_page_served_fresh_within_the_rule(
    world: World, before_and_after: tuple[tuple[float, int], tuple[float, int]]
) -> None:
    name = PAGES[1]
    modified_s = int(world.read("berlin", name).headers["Newsstand-Modified"]) / 1000
    assert world.read("tokyo", name).headers["X-Cache"] == "pushed"
    changed_s = int(str(world.put(name, 2)["modified_ms"])) / 1000
    stale = {*KEEPING, WITHOUT}
    while stale:
        for broker in sorted(stale):
            asked_s = time.time()
            found = world.read(broker, name).content
            if found == content(name, 2):
                stale.remove(broker)
                continue
            assert found == content(name, 1)
            # A copy was last checked before the change, or the check would have found it.
            assert asked_s - changed_s <= 0.1 * (time.time() - modified_s) + 0.1, broker
        time.sleep(0.02)
    for broker in KEEPING:
        assert world.read(broker, name).content == content(name, 2)


def test_dead_broker_costs_one_round_trip_and_no_error(
    world: World, before_and_after: tuple[tuple[float, int], tuple[float, int]]
) -> None:
    assert world.read(WITHOUT, PAGES[2]).headers["X-Served-By"] == "berlin"

    async def read_around_a_death() -> bytes:
        async with Client(world.coordinator.url, "luis", PASSWORD, register=True, node=WITHOUT) as client:
            assert (await client.named_page(PAGES[2])).content == content(PAGES[2], 1)
            world.brokers.pop("berlin").kill()
            return (await client.named_page(PAGES[2])).content

    before = world.metric(WITHOUT, "page_redirects_total")
    assert asyncio.run(read_around_a_death()) == content(PAGES[2], 1)
    assert world.metric(WITHOUT, "page_redirects_total") == before + 3, "two sent, one missed"
    # Other pages that the redirect lists, by way of the own broker: each fails once, none twice.
    for name in PAGES[:2]:
        assert [world.read(WITHOUT, name).headers["X-Served-By"] for _ in range(2)] == ["origin", "origin"]
    assert world.metric(WITHOUT, "page_redirects_total") == before + 5
