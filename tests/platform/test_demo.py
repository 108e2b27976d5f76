"""The demo in real processes: its summary is consistent, and no process remains."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import httpx
import pytest
from support.broker.up import Up, eventually

from newsstand.cluster.app_folder import read_app
from newsstand.errors import UnknownPolicy
from newsstand.platform.tables import read_tables
from newsstand.scenarios.emergencies.app import write_app
from newsstand.scenarios.emergencies.city import City
from newsstand.scenarios.emergencies.driver import Cast, cast_for
from newsstand.scenarios.emergencies.people import DemoStatistics
from newsstand.scenarios.emergencies.state import PlatformAddresses

NOWHERE = "http://127.0.0.1:9"
SHOWN = {
    "now_ms",
    "elapsed_s",
    "duration_s",
    "city",
    "reports",
    "shelters",
    "users",
    "brokers",
    "totals",
    "latency_ms",
    "history",
    "policies",
    "policy",
    "policy_titles",
}


def test_demo_is_app_with_shorter_periods_and_brokers(tmp_path: Path) -> None:
    write_app(tmp_path, speed=5, brokers=3, budget=1000)
    app = read_app(tmp_path)
    assert app.channels["reports_of_kind"].period_s == 2
    assert app.channels["reports_with_shelters"].period_s == 12
    brokers = read_tables(tmp_path).brokers
    assert [one["name"] for one in brokers] == ["north", "south", "east"]
    assert brokers[0]["lat"] > brokers[2]["lat"] > brokers[1]["lat"]


def test_state_is_complete_before_first_event() -> None:
    async def shown() -> dict[str, object]:
        platform = PlatformAddresses(NOWHERE, "token", NOWHERE, [NOWHERE], ["token"])
        async with cast_for(platform, Cast(subscribers=7, duration_s=None)) as driver:
            await driver.state.look()
            with pytest.raises(UnknownPolicy):
                await driver.state.switch("best")
            return driver.state.snapshot()

    state = asyncio.run(shown())
    assert set(state) == SHOWN
    assert json.loads(json.dumps(state)) == state
    assert len(state["users"]) == 7
    assert len(state["shelters"]) == 60
    edges = City.bounds()
    assert all(edges["south"] <= one["lat"] <= edges["north"] for one in state["users"])
    assert state["totals"]["hit_ratio"] is None


def test_quantiles_are_of_received_latencies() -> None:
    statistics = DemoStatistics()
    assert statistics.quantiles() == {"p50": None, "p99": None}
    for milliseconds in range(100):
        statistics.add_latency(milliseconds)
    assert statistics.quantiles() == {"p50": 50, "p99": 99}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_demo_ends_after_its_duration_with_consistent_summary(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "newsstand.cli.main", "demo", "--duration", 20, "--headless", "--json")
    up = Up(tmp_path, command=(*command, "--subscribers", 50, "--data", tmp_path / "kept"), log=None)
    try:
        out, said = up.process.communicate(timeout=800)
        assert up.process.returncode == 0, said
        output = json.loads(out)
        assert output["received"] == output["acknowledged"] - output["missed"]
        assert output["subscribers"] == 50
        assert output["brokers"] == 2
        assert output["publications"] > 100
        assert output["hit_ratio"] is None or 0 <= output["hit_ratio"] <= 1
        assert output["hits"] + output["misses"] >= output["received"] + output["repeated"]
        assert up.nothing_is_left(60), up.processes()
    finally:
        up.sweep()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_demo_shows_its_page_until_ctrl_c(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "newsstand.cli.main", "demo", "--subscribers", 10, "--port", 0)
    up = Up(tmp_path, command=(*command, "--data", tmp_path / "kept", "--json"), log=None)
    try:
        assert up.process.stderr is not None
        url = ""
        while "The city lives" not in url:
            url = up.process.stderr.readline()
            assert url, up.output()
        url = url.split()[-1]
        assert "<title>" in httpx.get(url).text
        assert eventually(lambda: httpx.get(f"{url}state.json").json()["totals"]["publications"] > 70)
        assert httpx.post(f"{url}policy", json={"policy": "ttl"}).json() == {"policy": "ttl"}
        assert httpx.get(f"{url}state.json").json()["policy"] == "ttl"
        up.process.send_signal(signal.SIGINT)
        out, _ = up.process.communicate(timeout=120)
        assert up.process.returncode == 0
        assert json.loads(out)["policy"] == "ttl"
        assert up.nothing_is_left(60), up.processes()
    finally:
        up.sweep()
