"""Where a publication spends its time, from its publisher to its subscriber, on a real platform.

    make bench-stages
    .venv/bin/python benchmarks/publication_stages.py --rates 10 --subscriptions 1000 --seconds 30
    .venv/bin/python benchmarks/publication_stages.py --channels reports_near --rates --burst 500000

`newsstand up` runs cluster, coordinator and broker as processes. The app is the one of README.md with three more
channels: an equality, a distance and a join. `--channels` chooses others: `within` has a radius as a parameter. A
subscriber (SDK) has one subscription to each; further
subscriptions, which nothing matches, are registered at the cluster by a second broker. A publisher (SDK) sends one
record at a time, each for one of the channels in turn.

*total* is from the moment at which a record is due until the subscriber has the result, for every record. The
stages come from traces of a sample of the publications; each is the time since the previous one. Times of one
machine have one clock, and are whole milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.broker.up import Up

from newsstand.client import Client, Publisher, Subscription
from newsstand.model import Scalar

APP = """
[datasets.reports]
fields = { id = "string", kind = "string", lat = "double", lon = "double" }

[datasets.shelters]
key = "id"
fields = { id = "string", name = "string", lat = "double", lon = "double" }

[[brokers]]
name = "edge"
"""
QUERIES = {
    "reports_near": '''
parameters = { kind = "string", lat = "double", lon = "double" }
query = """
SELECT r.id, s.name AS shelter
FROM reports r LEFT JOIN shelters s ON distance_km(r.lat, r.lon, s.lat, s.lon) < 3
WHERE r.kind = :kind AND distance_km(r.lat, r.lon, :lat, :lon) < 2
"""
''',
    "of_kind": """
parameters = { kind = "string" }
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"
""",
    "near": """
parameters = { lat = "double", lon = "double" }
query = "SELECT r.id FROM reports r WHERE distance_km(r.lat, r.lon, :lat, :lon) < 2"
""",
    "at_shelter": '''
parameters = { shelter = "string" }
query = """
SELECT r.id, s.name FROM reports r JOIN shelters s ON distance_km(r.lat, r.lon, s.lat, s.lon) < 3
WHERE s.id = :shelter
"""
''',
    "within": """
parameters = { lat = "double", lon = "double", km = "double" }
query = "SELECT r.id FROM reports r WHERE distance_km(r.lat, r.lon, :lat, :lon) < :km"
""",
}
USUAL = ("reports_near", "of_kind", "near", "at_shelter")
SHELTER = {"id": "town", "name": "Town hall", "lat": 10.0, "lon": 10.0}
CHANNELS: Mapping[str, tuple[Mapping[str, Scalar], Mapping[str, Scalar]]] = {
    "reports_near": (
        {"kind": "flood", "lat": 33.68, "lon": -117.83},
        {"kind": "flood", "lat": 33.681, "lon": -117.829},
    ),
    "of_kind": ({"kind": "fire"}, {"kind": "fire", "lat": 50.0, "lon": 50.0}),
    "near": ({"lat": 20.0, "lon": 20.0}, {"kind": "other", "lat": 20.001, "lon": 20.001}),
    "at_shelter": ({"shelter": "town"}, {"kind": "other", "lat": 10.001, "lon": 10.001}),
    "within": ({"lat": 30.0, "lon": 30.0, "km": 5.0}, {"kind": "other", "lat": 30.001, "lon": 30.001}),
}
"""Of each channel the subscriber's values, and a record that only they match."""
NOTHING = {"kind": "nothing", "lat": -80.0, "lon": 0.0}
STAGES = (
    *("received", "durable", "queued", "planned", "executed", "stored"),
    *("notified", "pulled", "signalled", "read", "acknowledged"),
)
AT_BROKER = STAGES[6:]
BURST_BATCH = 5000
CROWD_BATCH = 20_000


class Platform:
    """A platform, its publisher and its subscriber, and what has arrived when."""

    def __init__(self, folder: Path, channels: Sequence[str], patience_s: float) -> None:
        app = folder / "app"
        app.mkdir()
        declared = [f"[channels.{name}]{QUERIES[name]}" for name in channels]
        (app / "newsstand.toml").write_text("\n".join([APP, *declared]))
        self.channels = channels
        words = (sys.executable, "-m", "newsstand.cli.main", "up", app, "--base-port", "0", "--json")
        began = time.perf_counter()
        self.up = Up(folder, command=words)
        where: Any = self.up.addresses()
        self.started_s = time.perf_counter() - began
        token = (app / "data" / "admin.token").read_text().strip()
        self.cluster_url = where["cluster"]["url"]
        headers = {"Authorization": f"Bearer {token}"}
        self.cluster = httpx.AsyncClient(base_url=self.cluster_url, headers=headers, timeout=600)
        self.publisher = Publisher(self.cluster_url, token)
        self.client = Client(where["coordinator"]["url"], "ana", "a good password", register=True)
        self.patience_s = patience_s
        self.crowd = 0
        self.arrived: dict[str, float] = {}
        self.numbers = itertools.count(1)
        self._arrival = asyncio.Event()

    async def subscribe(self) -> None:
        made = [await self.client.subscribe(name, **CHANNELS[name][0]) for name in self.channels]
        self._reading = asyncio.create_task(self._read(made))

    async def close(self) -> None:
        self._reading.cancel()
        with suppress(asyncio.CancelledError):
            await self._reading
        await self.client.close()
        await self.publisher.close()
        await self.cluster.aclose()

    async def _read(self, subscriptions: Sequence[Subscription]) -> None:
        async for result in self.client.results(*subscriptions):
            self.arrived[result.payload["id"]] = time.perf_counter()
            self._arrival.set()

    async def wait_for(self, names: set[str]) -> None:
        """Wait until these records have arrived; name those that do not."""
        deadline = time.perf_counter() + self.patience_s
        while missing := names - self.arrived.keys():
            self._arrival.clear()
            try:
                async with asyncio.timeout(deadline - time.perf_counter()):
                    await self._arrival.wait()
            except TimeoutError:
                raise SystemExit(f"{len(missing)} of {len(names)} results did not arrive") from None

    async def publish(self, channel: str) -> tuple[str, int]:
        """Publish a record that a channel matches; return its id and its number."""
        name = f"{channel} {next(self.numbers)}"
        receipt = await self.publisher.publish("reports", {"id": name, **CHANNELS[channel][1]})
        assert receipt.first is not None
        return name, receipt.first

    async def fill(self, subscriptions: int) -> None:
        """Register subscriptions that nothing matches, up to a total."""
        if self.crowd == 0:
            callback = {"callback": "http://127.0.0.1:9/"}
            (await self.cluster.put("/brokers/crowd", json=callback)).raise_for_status()
        wanted = max(0, subscriptions - len(self.channels))
        chance = random.Random(wanted)
        while self.crowd < wanted:
            count = min(CROWD_BATCH, wanted - self.crowd)
            batch = [_unmatched(self.channels, chance, self.crowd + number) for number in range(count)]
            (await self.cluster.post("/brokers/crowd/subscriptions", json=batch)).raise_for_status()
            self.crowd += count

    async def traces(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return the traces of publications, eight at a time."""
        turn = asyncio.Semaphore(8)

        async def trace(number: int) -> dict[str, Any]:
            async with turn:
                answer = await self.cluster.get(f"/datasets/reports/publications/{number}/trace")
                return dict(answer.raise_for_status().json())

        return await asyncio.gather(*map(trace, numbers))


def _unmatched(channels: Sequence[str], chance: random.Random, number: int) -> dict[str, object]:
    """Return a subscription with values of its own that no record matches."""
    place = {"lat": chance.uniform(-60, -40), "lon": chance.uniform(-179, 179)}
    values: dict[str, dict[str, object]] = {
        "reports_near": {"kind": f"kind {number}", **place},
        "of_kind": {"kind": f"kind {number}"},
        "near": {**place},
        "at_shelter": {"shelter": f"shelter {number}"},
        "within": {**place, "km": chance.uniform(1, 5)},
    }
    channel = channels[number % len(channels)]
    return {"channel": channel, "values": values[channel]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--channels", choices=QUERIES, nargs="+", default=USUAL)
    parser.add_argument("--rates", type=float, nargs="*", default=[1.0, 10.0, 100.0], help="publications a second")
    parser.add_argument("--subscriptions", type=int, nargs="+", default=[1, 1000, 100_000])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each phase")
    parser.add_argument("--warm-up", type=float, default=10.0, help="seconds of each phase before anything counts")
    parser.add_argument("--sample", type=int, default=200, help="publications of each phase that are traced")
    parser.add_argument("--burst", type=int, default=0, help="then publish records that match nothing")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds to wait for results")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(measure(Path(folder), options))
    if options.json:
        print(json.dumps(report))
    else:
        show(report)


async def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    platform = Platform(folder, options.channels, options.patience)
    try:
        await platform.publisher.publish("shelters", SHELTER)
        await platform.subscribe()
        began = time.perf_counter()
        first = {(await platform.publish(channel))[0] for channel in platform.channels}
        await platform.wait_for(first)
        report: dict[str, Any] = {
            "start_s": platform.started_s,
            "first_result_ms": {
                name.split()[0]: (platform.arrived[name] - began) * 1000 for name in sorted(first)
            },
            "phases": [],
            "burst": None,
        }
        for subscriptions in options.subscriptions:
            await platform.fill(subscriptions)
            for rate in options.rates:
                report["phases"].append(await phase(platform, rate, subscriptions, options))
                say(f"{rate:g}/s, {subscriptions:,} subscriptions: done")
        if options.burst:
            report["burst"] = await burst(platform, options.burst)
        await platform.close()
        return report
    finally:
        platform.up.sweep()


async def phase(
    platform: Platform, rate: float, subscriptions: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Publish at a rate; return latencies and stages of what is published after the warm-up."""
    due: dict[str, float] = {}
    numbers: list[int] = []
    begin = time.perf_counter()
    count = int((options.warm_up + options.seconds) * rate)

    async def send(channel: str, at: float) -> None:
        name, number = await platform.publish(channel)
        due[name] = at
        if at >= begin + options.warm_up:
            numbers.append(number)

    channels = itertools.cycle(platform.channels)
    async with asyncio.TaskGroup() as sending:
        for number in range(count):
            at = begin + number / rate
            await asyncio.sleep(max(0.0, at - time.perf_counter()))
            sending.create_task(send(next(channels), at))
    await platform.wait_for(set(due))
    await asyncio.sleep(1)  # the last acknowledgements
    totals = [(platform.arrived[name] - at) * 1000 for name, at in due.items() if at >= begin + options.warm_up]
    chosen = random.Random(1).sample(numbers, min(options.sample, len(numbers)))
    return {
        "rate": rate,
        "subscriptions": subscriptions,
        "publications": len(totals),
        "total_ms": quantiles(totals),
        "stages_ms": stages(await platform.traces(sorted(chosen))),
    }


def stages(traces: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the quantiles of each stage, over the channel of each publication that has a result."""
    found: dict[str, list[float]] = defaultdict(list)
    for trace in traces:
        for channel in trace["channels"]:
            for broker in channel.get("brokers", ()):
                for one in broker["deliveries"]:
                    at = {**trace["stages"], **channel["stages"], **{stage: one[stage] for stage in AT_BROKER}}
                    for before, stage in itertools.pairwise(STAGES):
                        if at[before] is not None and at[stage] is not None:
                            found[stage].append(max(0, at[stage] - at[before]))
    return {stage: quantiles(found[stage]) for stage in STAGES if found[stage]}


def quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
        "n": len(ordered),
    }


async def burst(platform: Platform, records: int) -> dict[str, Any]:
    """Publish many records that match nothing; return how long the next result takes."""
    began = time.perf_counter()
    for start in range(0, records, BURST_BATCH):
        batch = [{"id": f"b{start + n}", **NOTHING} for n in range(min(BURST_BATCH, records - start))]
        await platform.publisher.publish("reports", batch)
    published = time.perf_counter()
    names = [(await platform.publish(channel))[0] for channel in platform.channels]
    await platform.wait_for(set(names))
    return {
        "records": records,
        "publish_s": published - began,
        "next_result_ms": {name.split()[0]: (platform.arrived[name] - published) * 1000 for name in names},
    }


def show(report: Mapping[str, Any]) -> None:
    print(f"platform ready after {report['start_s']:.1f} s")
    for channel, latency in report["first_result_ms"].items():
        print(f"first result of {channel} after ready: {latency:,.0f} ms")
    for one in report["phases"]:
        print(f"\n{one['rate']:g}/s, {one['subscriptions']:,} subscriptions, {one['publications']:,} publications")
        print(f"{'stage':14} {'p50 ms':>10} {'p99 ms':>10}")
        for stage, found in one["stages_ms"].items():
            print(f"{stage:14} {found['p50']:10,.0f} {found['p99']:10,.0f}")
        print(f"{'total':14} {one['total_ms']['p50']:10,.0f} {one['total_ms']['p99']:10,.0f}")
    if report["burst"]:
        after = report["burst"]
        print(f"\n{after['records']:,} records that match nothing, published in {after['publish_s']:.1f} s;")
        for channel, latency in after["next_result_ms"].items():
            print(f"next result of {channel}: {latency:,.0f} ms later")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
