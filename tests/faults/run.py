"""One run: a platform, its subscribers and publishers, the faults of a schedule, and the oracle's report."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import httpx
from support.cluster.checker import logged
from support.cluster.webhooks import Receiver, receiving

from faults.findings import Report
from faults.interests import ALL, CHANNELS, LONE, STEADY
from faults.journal import Journal, Line, lines, now
from faults.oracle import WITNESS, judge, judge_witness
from faults.platform import Platform
from faults.publisher import Publisher
from faults.schedule import BROKERS, Fault
from faults.subscriber import Subscriber

SETTLE_S = 120.0
CALM_S = 8.0


class Run:
    """The journals of a run are `*.jsonl` and `witness.json` in its folder, the logs of its processes `*.log`."""

    def __init__(self, folder: Path, seed: int, subscribers: int = 54, every: float = 0.5) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._seed = seed
        self._count = subscribers
        self._every = every
        self._faults = Journal(folder / "faults.jsonl")
        self._platform = Platform(folder, self._faults)
        self._away: set[str] = set()
        self._back = asyncio.Condition()
        self._streams: dict[str, list[str]] = {}
        self._witnessed: dict[str, str] = {}
        """The subscriptions of the witness."""

    def __call__(self, faults: Sequence[Fault]) -> Report:
        """Inject the faults, wait until subscribers have everything, and check the journals."""
        with receiving(broker=WITNESS) as witness:
            try:
                self._platform.start()
                self._subscribe_witness(witness, [one.key for one in STEADY])
                asyncio.run(self._play(faults))
                self._await_notifications(witness)
            finally:
                self._platform.stop()
                self._faults.close()
        return self._judge(witness)

    # The witness

    @contextmanager
    def _cluster(self):  # type: ignore[no-untyped-def]
        headers = {"Authorization": f"Bearer {self._platform.token}"}
        with httpx.Client(
            base_url=self._platform.url("cluster"), headers=headers, timeout=60, verify=False
        ) as client:
            yield client

    def _subscribe_witness(self, witness: Receiver, keys: Sequence[str]) -> None:
        with self._cluster() as cluster:
            reply = cluster.put(f"/brokers/{WITNESS}", json={"callback": witness.url}).raise_for_status().json()
            witness.secret = reply["secret"]
            self._witnessed = self._ids(cluster, keys)

    def _await_notifications(self, witness: Receiver) -> None:
        """Wait for a limited time until the witness knows all results of its streams."""
        until = time.monotonic() + SETTLE_S
        ends = {key: len(self._streams[key]) for key in self._witnessed}
        while time.monotonic() < until and self._announced(witness) != ends:
            time.sleep(0.2)

    def _announced(self, witness: Receiver) -> dict[str, int]:
        """Return the last position that the witness was notified of, by stream."""
        return {key: witness.positions.get(id, 0) for key, id in self._witnessed.items()}

    def _ids(self, cluster: httpx.Client, keys: Sequence[str]) -> dict[str, str]:
        wanted = [{"channel": ALL[key].channel, "values": dict(ALL[key].values)} for key in keys]
        answer = cluster.post(f"/brokers/{WITNESS}/subscriptions", json=wanted).raise_for_status()
        return dict(zip(keys, answer.json()["ids"], strict=True))

    def _read_streams(self) -> None:
        """Wait until all publications are evaluated, and read all streams."""
        until = time.monotonic() + SETTLE_S
        with self._cluster() as cluster:
            while any(cluster.get(f"/channels/{name}").json()["status"]["lag"] for name in CHANNELS):
                assert time.monotonic() < until, "channels do not catch up"
                time.sleep(0.2)
            for key, id in self._ids(cluster, list(ALL)).items():
                found: list[str] = []
                while True:
                    query = {"after": len(found), "limit": 10_000}
                    page = cluster.get(f"/subscriptions/{id}/results", params=query).raise_for_status().json()
                    if not page["results"]:
                        break
                    found += [one["payload"]["id"] for one in page["results"]]
                self._streams[key] = found
        (self.folder / "streams.json").write_text(json.dumps(self._streams))

    # The run

    async def _play(self, faults: Sequence[Fault]) -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as http:
            journals = [Journal(self.folder / f"s{number:02}.jsonl") for number in range(self._count)]
            subscribers = [self._subscriber(number, http, journal) for number, journal in enumerate(journals)]
            published = Journal(self.folder / "published.jsonl")
            publishers = [self._publisher(name, http, published) for name in ("p", "q")]
            async with asyncio.TaskGroup() as group:
                for publisher in publishers:
                    group.create_task(publisher.run())
                for subscriber in subscribers:
                    group.create_task(subscriber.run())
                async with asyncio.TaskGroup() as returns:
                    for fault in faults:
                        await self._strike(fault, returns)
                await asyncio.sleep(CALM_S / 2)
                for publisher in publishers:
                    publisher.done.set()
                for subscriber in subscribers:
                    subscriber.leaving.set()
            await asyncio.to_thread(self._read_streams)
            await asyncio.gather(*(self._settle(subscriber) for subscriber in subscribers))
            for journal in (*journals, published):
                journal.close()

    def _subscriber(self, number: int, http: aiohttp.ClientSession, journal: Journal) -> Subscriber:
        rng = random.Random(f"subscriber {self._seed} {number}")
        interests = [one.key for one in rng.sample(STEADY, 6)]
        interests += [
            one.key for place, one in enumerate(LONE) if place % (self._count // 2) == number % (self._count // 2)
        ]
        urls = {name: self._platform.url(name) for name in ("coordinator", *BROKERS)}
        return Subscriber(f"s{number:02}", rng, http, urls, journal, interests)

    def _publisher(self, name: str, http: aiohttp.ClientSession, journal: Journal) -> Publisher:
        rng = random.Random(f"publisher {self._seed} {name}")
        url = self._platform.url("cluster")
        return Publisher(name, rng, http, url, lambda: self._platform.token, journal, self._every)

    async def _strike(self, fault: Fault, returns: asyncio.TaskGroup) -> None:
        await asyncio.sleep(fault.after)
        async with self._back:
            await self._back.wait_for(lambda: not self._away & set(fault.targets))
        self._away |= set(fault.targets)
        await asyncio.to_thread(self._platform.strike, fault.kind, fault.targets, fault.whole)
        returns.create_task(self._return(fault))

    async def _return(self, fault: Fault) -> None:
        await asyncio.sleep(fault.away)
        await asyncio.to_thread(self._platform.bring_back, fault.kind, fault.targets)
        async with self._back:
            self._away -= set(fault.targets)
            self._back.notify_all()

    async def _settle(self, subscriber: Subscriber) -> None:
        """Wait for a limited time until a subscriber has received everything."""
        subscriber.goal = {key: len(ids) for key, ids in self._streams.items()}
        until = now() + SETTLE_S
        while not await subscriber.settle() and now() < until:
            await asyncio.sleep(0.5)
        await subscriber.finish()

    # After the run

    def _judge(self, witness: Receiver) -> Report:
        log = list(logged(self._platform.data, "reports"))
        (self.folder / "log.json").write_text(json.dumps(log))
        seen = {"positions": self._announced(witness), "regressions": witness.regressions}
        (self.folder / "witness.json").write_text(json.dumps(seen))
        report = judge_folder(self.folder)
        (self.folder / "report.json").write_text(
            json.dumps(
                {"figures": summary(report, self.folder), "violations": [str(one) for one in report.violations]}
            )
        )
        return report


def judge_folder(folder: Path) -> Report:
    """Check the journals of a run."""
    journals = {file.stem: lines(file) for file in sorted(folder.glob("s[0-9]*.jsonl"))}
    streams = json.loads((folder / "streams.json").read_text())
    log = json.loads((folder / "log.json").read_text())
    steady = [one.key for one in STEADY]
    published, faults = lines(folder / "published.jsonl"), lines(folder / "faults.jsonl")
    report = judge(journals, published, faults, log, streams, steady)
    judge_witness(report, json.loads((folder / "witness.json").read_text()), streams)
    return report


def summary(report: Report, folder: Path) -> dict[str, object]:
    """Return the figures of a run."""
    faults = lines(folder / "faults.jsonl")
    figures: dict[str, object] = {}
    for kind in ("kill", "pause"):
        figures[f"{kind}s"] = dict(Counter(line["process"] for line in faults if line["op"] == kind))
    figures |= dict(sorted(report.figures.items()))
    figures["longest from kill to ready, s"] = _longest(faults)
    figures["longest from publication to receipt, s"] = round(report.slowest_s, 1)
    figures["violations"] = dict(Counter(one.rule for one in report.violations))
    return figures


def _longest(faults: Sequence[Line]) -> dict[str, float]:
    killed: dict[str, float] = {}
    longest: dict[str, float] = {}
    for line in faults:
        name = line["process"]
        if line["op"] == "kill":
            killed[name] = line["at"]
        elif line["op"] == "ready" and name in killed:
            longest[name] = round(max(longest.get(name, 0), line["at"] - killed.pop(name)), 1)
    return longest


if __name__ == "__main__":
    for folder in map(Path, sys.argv[1:]):
        found = judge_folder(folder)
        print(json.dumps(summary(found, folder), indent=1))
        for violation in found.violations:
            print(violation)
