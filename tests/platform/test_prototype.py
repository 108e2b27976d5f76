"""The experiment with the prototype: its trace, its app, its link, and plays against live brokers."""

from __future__ import annotations

import asyncio
import itertools
import time
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from support.broker.press import Press
from support.broker.process import SECRET, as_operator, start_broker, wait_ready

from newsstand.cli.lab.bad2018 import Prototype, plays_of, run_prototype
from newsstand.cluster.app_folder import read_app
from newsstand.platform.experiment import access_token, enrol, slow_link
from newsstand.platform.processes import Ports, plan
from newsstand.platform.tables import read_tables
from newsstand.scenarios.emergencies.activity import Activity, ActivityTrace, Publishing, make_trace, merged
from newsstand.scenarios.emergencies.app import Scheme, write_experiment
from newsstand.scenarios.emergencies.city import size_of
from newsstand.scenarios.emergencies.playback import Playback, PlaybackBroker, PlaybackSpeed

# The trace


@pytest.fixture(scope="module")
def hour() -> ActivityTrace:
    return make_trace(2018, 3600)


ACTIONS = {"subscribe": 3591, "login": 832, "logout": 656, "unsubscribe": 133}
PUBLISHED = {"shelters": 366, "locations": 120, "reports": 361}


def test_trace_is_that_of_paper(hour: ActivityTrace) -> None:
    assert (len(hour.subscribers), hour.frontends, hour.backends) == (400, 3458, 798)
    assert Counter(one.action for one in hour.activities) == ACTIONS
    assert Counter(one.dataset for one in hour.publishing) == PUBLISHED
    assert {wanted[0] for held in hour.initial.values() for wanted in held} == {
        "reports_of_kind",
        "reports_near",
        "reports_of_kind_near",
        "reports_with_shelters",
        "reports_near_user",
        "reports_of_kind_near_user",
        "reports_near_user_with_shelters",
    }
    sizes = [
        size_of(one) for several in hour.publishing if several.dataset == "reports" for one in several.records
    ]
    assert 200 <= min(sizes) <= max(sizes) <= 1000


def test_trace_depends_on_seed() -> None:
    assert make_trace(7, 300, 20) == make_trace(7, 300, 20)
    assert make_trace(7, 300, 20).activities != make_trace(8, 300, 20).activities


def test_activities_of_each_subscriber_are_consistent(hour: ActivityTrace) -> None:
    assert [one.time_s for one in hour.activities] == sorted(one.time_s for one in hour.activities)
    assert all(0 <= one.time_s < hour.duration_s for one in hour.activities)
    held = {name: {merged(one) for one in wanted} for name, wanted in hour.initial.items()}
    online = dict.fromkeys(held, False)
    for one in hour.activities:
        if one.action in ("login", "logout"):
            assert online[one.subscriber] is (one.action == "logout")
            online[one.subscriber] = one.action == "login"
            continue
        assert one.wanted is not None
        if one.time_s == 0:
            continue
        assert online[one.subscriber]
        if one.action == "unsubscribe":
            held[one.subscriber].remove(merged(one.wanted))
        else:
            assert merged(one.wanted) not in held[one.subscriber]
            held[one.subscriber].add(merged(one.wanted))


def test_subscribers_are_online_two_fifths_of_time(hour: ActivityTrace) -> None:
    """Means of 15.9 and 20.7 minutes: 43 %."""
    online, shares = 0, []
    for _, several in itertools.groupby(hour.activities, lambda one: int(one.time_s // 60)):
        changes = Counter(one.action for one in several)
        online += changes["login"] - changes["logout"]
        shares.append(online / 400)
    assert 0.36 < min(shares) <= max(shares) < 0.52


# The app


def test_periods_and_windows_are_shortened_by_factor(tmp_path: Path) -> None:
    write_experiment(
        tmp_path, [Scheme("nc", 0), Scheme("ttl", 25_000, cap_s=300), Scheme("exp", 9, 500)], factor=10
    )
    document = tomllib.loads((tmp_path / "newsstand.toml").read_text())
    periods = [one.get("period") for one in document["channels"].values()]
    assert periods == [1, 2, 3, 6, 1, 1, 1]
    brokers = {one["name"]: one for one in read_tables(tmp_path).brokers}
    assert list(brokers) == ["nc-0", "ttl-25000-300s", "exp-9-500ms"]
    assert [one["results_cap_ms"] for one in brokers.values()] == [360_000, 30_000, 360_000]
    assert {one["results_window_ms"] for one in brokers.values()} == {30_000}
    write_experiment(tmp_path, [], factor=20)
    assert "period = 1\n" in (tmp_path / "newsstand.toml").read_text()


def test_platform_without_coordinator_starts_none(tmp_path: Path) -> None:
    write_experiment(tmp_path, [Scheme("lsc", 1000)], factor=10)
    planned = plan(read_app(tmp_path), read_tables(tmp_path), ports=Ports(0))
    alone = plan(read_app(tmp_path), read_tables(tmp_path), ports=Ports(0), with_coordinator=False)
    assert [[one.name for one in stage] for stage in alone.stages] == [["cluster"], ["broker lsc-1000"]]
    file = alone.folder.broker("lsc-1000") / "broker.toml"
    output = tomllib.loads(alone.settings[file])["broker"]
    assert "coordinator" not in output
    assert output["cluster"] == alone.cluster.url
    assert output["secret_file"] == str(alone.folder.secret_file)
    assert planned.coordinator is not None
    assert tomllib.loads(planned.settings[file])["broker"]["coordinator"] == planned.coordinator.url


def test_brokers_play_together_or_by_size() -> None:
    (together,) = plays_of([25_000, 100_000], apart=False)
    assert len({one.name for one in together}) == len(together) == 1 + 6 + 6 + 2 + 1
    first, second = plays_of([25_000, 100_000], apart=True)
    assert {one.name for one in first} | {one.name for one in second} == {one.name for one in together}
    assert [(one.policy, one.budget) for one in second if one.delay_ms] == [("nc", 0), ("lsc", 100_000)]


# The link


def test_slow_link_delays_and_forwards_everything() -> None:
    async def ask() -> tuple[float, float, bytes]:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while piece := await reader.read(1000):
                writer.write(piece)
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server, slow_link(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", 0.2) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            begun = time.monotonic()
            writer.write(b"x" * 100_000)
            writer.write_eof()
            first = await reader.readexactly(1)
            answered = time.monotonic() - begun
            rest = await reader.read(-1)
            ended = time.monotonic() - begun
            writer.close()
            return answered, ended, first + rest

    answered, ended, got = asyncio.run(ask())
    assert got == b"x" * 100_000
    assert 0.2 <= answered <= ended < 5


# A play

KINDS = ("fire", "flood")


class Printing:
    """Stands for a publisher: what is published is a result at once."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def publish(self, dataset: str, records: Sequence[Mapping[str, object]]) -> None:
        items = [{"channel": "of_kind", "values": [one["kind"]], "payload": one} for one in records]
        async with httpx.AsyncClient() as http:
            (await http.post(f"{self._url}/press", json=items)).raise_for_status()


def small_trace() -> ActivityTrace:
    """Ann is online all the time, Bob for a while, Cy comes late; Ann does without floods for a while."""
    wanted = {kind: ("of_kind", {"kind": kind}) for kind in KINDS}
    activities = [
        *(Activity(0, name, "subscribe", wanted["fire"]) for name in ("ann", "bob", "cy")),
        Activity(0, "ann", "subscribe", wanted["flood"]),
        Activity(0, "ann", "login"),
        Activity(0, "bob", "login"),
        Activity(24, "bob", "logout"),
        Activity(26, "ann", "unsubscribe", wanted["flood"]),
        Activity(36, "ann", "subscribe", wanted["flood"]),
        Activity(40, "cy", "login"),
    ]
    times = [16, 17, 31, 47]
    publishing = [Publishing(at, "reports", [{"kind": kind, "id": f"{at}"} for kind in KINDS]) for at in times]
    return ActivityTrace(1, 52, activities, publishing)


@pytest.mark.timeout(120)
def test_brokers_play_same_trace_and_differ_in_fetches(tmp_path: Path) -> None:
    trace, now_s = small_trace(), int(time.time())
    people = {name: [(channel, list(values.values())) for channel, values in held]
              for name, held in trace.initial.items()}  # fmt: skip
    policies = {"nc": 0, "lsc": 1_000_000}
    press = Press(tmp_path / "press")
    with press.serving() as cluster:
        brokers = {}
        try:
            for policy, budget in policies.items():
                enrol(tmp_path / policy, people, now_s)
                options = ("--results-policy", policy, "--results-budget", budget)
                brokers[policy] = start_broker(tmp_path / policy, cluster, policy, 0, *options)
            for broker in brokers.values():
                wait_ready(broker.url)
            tokens = {name: access_token(name, SECRET, now_s) for name in people}
            watched = [PlaybackBroker(policy, broker.url, tokens) for policy, broker in brokers.items()]

            async def perform() -> list[dict[str, object]] | None:
                playback = Playback(trace, PlaybackSpeed(5, 10, 0.3), watched, as_operator(), lambda _: None)
                return await playback.play(Printing(cluster), asyncio.Event())  # type: ignore[arg-type]

            rows = asyncio.run(perform())
        finally:
            for broker in brokers.values():
                broker.stop()
    assert rows is not None
    of = {row["broker"]: row for row in rows}
    for row in rows:
        assert row["troubles"] == 0, row
        # Online: Ann all but the flood of 31, Bob the fires of 16 and 17, Cy the fire of 47. Late: Cy's others.
        assert (row["online"], row["late"]) == (7 + 2 + 1, 3)
        assert int(str(row["hits"])) + int(str(row["misses"])) == 13
        assert (row["frontends"], row["backends"]) == (4, 2)
    assert of["nc"]["hit_ratio"] == of["nc"]["hit_ratio_late"] == 0
    # Who reads while a newer result is just being pulled counts as a miss.
    assert float(str(of["lsc"]["hit_ratio"])) > 0.7
    assert of["lsc"]["hit_ratio_late"] == 1
    assert of["nc"]["pulled_bytes"] == 0
    assert 0 < int(str(of["lsc"]["fetched_bytes"])) < int(str(of["nc"]["fetched_bytes"]))


def test_play_can_be_stopped_early(tmp_path: Path) -> None:
    async def perform() -> object:
        stopping = asyncio.Event()
        asyncio.get_running_loop().call_later(0.2, stopping.set)
        playback = Playback(small_trace(), PlaybackSpeed(1, 10), [], "", lambda _: None)
        return await playback.play(Printing("http://127.0.0.1:1"), stopping)  # type: ignore[arg-type]

    begun = time.monotonic()
    assert asyncio.run(perform()) is None
    assert time.monotonic() - begun < 5


def test_play_is_not_repeated_when_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    async def played(_: object, schemes: Sequence[Scheme], *more: object) -> list[dict[str, object]] | None:
        asked.append([one.name for one in schemes])
        return None if len(asked) == 3 else [{"broker": one.name, "hits": len(asked)} for one in schemes]

    monkeypatch.setattr("newsstand.cli.lab.bad2018.play", played)
    experiment = Prototype(minutes=1, warm_up_minutes=0.3, factor=10, subscribers=4, seed=1)
    small, large = [Scheme("nc", 0), Scheme("lsc", 10)], [Scheme("nc", 0), Scheme("lsc", 99)]
    first = run_prototype(experiment, [small], tmp_path)
    assert first == run_prototype(experiment, [small], tmp_path)
    both = run_prototype(experiment, [small, large], tmp_path)
    assert both is not None
    assert sorted((one["budget"], one["hits"]) for one in both) == [(0, 1), (0, 2), (10, 1), (99, 2)]
    assert len({one["play"] for one in both}) == 2
    # Another experiment has nothing of it, and this time it is stopped.
    assert run_prototype(replace(experiment, factor=5), [small], tmp_path) is None
    assert asked == [["nc-0", "lsc-10"], ["nc-0", "lsc-99"], ["nc-0", "lsc-10"]]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_smallest_size_plays_on_whole_platform(tmp_path: Path) -> None:
    """A cache of 10 KB, one that holds everything, and none, near and far."""
    prototype = Prototype(minutes=20, warm_up_minutes=6, factor=10, subscribers=400, seed=2018)
    schemes = [Scheme("nc", 0), Scheme("lsc", 10_000), Scheme("lsc", 10_000_000), Scheme("nc", 0, 500)]
    rows = run_prototype(prototype, [schemes], tmp_path)
    assert rows is not None
    none, small, large, far = (
        {key: float(str(value)) for key, value in row.items() if key in SEEN} for row in rows
    )
    assert none["hit_ratio"] == far["hit_ratio"] == 0
    assert 0 < small["hit_ratio"] < large["hit_ratio"]
    assert large["hit_ratio"] > 0.9
    assert large["fetched_bytes"] < small["fetched_bytes"] < none["fetched_bytes"]
    assert large["cluster_wait_ms"] < none["cluster_wait_ms"]
    assert far["cluster_wait_ms"] > 500
    assert none["frontends"] > 3400
    assert none["backends"] > 780


SEEN = ("hit_ratio", "fetched_bytes", "cluster_wait_ms", "frontends", "backends")
