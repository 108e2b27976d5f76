"""The stages of publications: when each one ended at the cluster, and what brokers report of the later ones.

The times of recent appends and executions are in memory: after a restart, those of earlier ones are unknown.
Durations are measured by the monotonic clock; times are Unix milliseconds.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal, NamedTuple

import msgspec

from newsstand.auth.signing import HEADER, Recipient, sign
from newsstand.http.app import StageHistogram
from newsstand.http.client import ConnectError, HttpClient, RequestError, raw_path
from newsstand.model import Broker
from newsstand.wire.notifications import DeliveryReport, DeliveryRequest, StreamPosition, deliveries_url

ExecutionStage = Literal["queued", "planned", "executed"]
"""A stage of an execution before its results are stored."""


class AppendTimes(NamedTuple):
    """The records of one append, and when its request arrived and when it was durable."""

    first: int
    last: int
    received: float
    """Seconds of the monotonic clock."""
    durable: float
    received_ms: int
    durable_ms: int


@dataclass(eq=False, slots=True)
class ExecutionStages:
    """When the stages of one attempt of an execution ended; `queued` ends as the attempt begins."""

    times: StageTimes
    channel: str
    dataset: str
    after: int
    through: int
    ended: dict[ExecutionStage, tuple[float, int]] = field(default_factory=dict)
    """Seconds of the monotonic clock, and Unix milliseconds."""

    def end(self, stage: ExecutionStage) -> None:
        """Record that a stage has ended; of several ends the last counts."""
        self.ended[stage] = self.times.now()

    def stored(self, number: int) -> None:
        """Record that the results are stored under the number of the execution, and observe all stages."""
        self.times.on_stored(self, number)


class StageTimes:
    """The times of recent appends and executions. Methods may be called from several threads."""

    def __init__(
        self,
        histogram: StageHistogram,
        now_ms: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        *,
        appends: int = 10_000,
        executions: int = 10_000,
    ) -> None:
        """Keep at least this number of appends of each dataset, and of executions of all channels."""
        self._histogram = histogram
        self._now_ms = now_ms
        self._clock = clock
        self._most_appends = appends
        self._most_executions = executions
        self._appends: dict[str, list[AppendTimes]] = {}
        """In the order of their records."""
        self._executions: OrderedDict[int, dict[ExecutionStage, int]] = OrderedDict()
        self._lock = threading.Lock()

    def now(self) -> tuple[float, int]:
        """Return the present in seconds of the monotonic clock, and in Unix milliseconds."""
        return self._clock(), self._now_ms()

    def appended(self, dataset: str, first: int, last: int, received: tuple[float, int]) -> None:
        """Record that records are durable, whose request arrived at `received`, a result of `now`."""
        durable, durable_ms = self.now()
        append = AppendTimes(first, last, received[0], durable, received[1], durable_ms)
        with self._lock:
            known = self._appends.setdefault(dataset, [])
            insort(known, append, key=attrgetter("last"))  # threads of publishers may arrive in another order
            if len(known) > 2 * self._most_appends:
                del known[: -self._most_appends]

    def begin(self, channel: str, dataset: str, after: int, through: int) -> ExecutionStages:
        """Record the begin of an execution on the publications after < seq <= through."""
        stages = ExecutionStages(self, channel, dataset, after, through)
        stages.end("queued")
        return stages

    def on_stored(self, stages: ExecutionStages, number: int) -> None:
        """Observe the stages of an execution: each publication counts once in each stage of the channel."""
        stored, channel = self._clock(), stages.channel
        with self._lock:
            self._executions[number] = {stage: at_ms for stage, (_, at_ms) in stages.ended.items()}
            while len(self._executions) > self._most_executions:
                self._executions.popitem(last=False)
        observe = self._histogram.observe
        began = stages.ended["queued"][0]
        for append in self._appends_in(stages.dataset, stages.after, stages.through):
            publications = min(append.last, stages.through) - max(append.first - 1, stages.after)
            observe("durable", channel, append.durable - append.received, publications)
            observe("queued", channel, began - append.durable, publications)
        earlier, publications = began, stages.through - stages.after
        for stage in ("planned", "executed"):
            if stage in stages.ended:
                at, _ = stages.ended[stage]
                observe(stage, channel, at - earlier, publications)
                earlier = at
        observe("stored", channel, stored - earlier, publications)

    def of_publication(self, dataset: str, seq: int) -> AppendTimes | None:
        """Return the times of the append with a publication, if they are known."""
        return next(iter(self._appends_in(dataset, seq - 1, seq)), None)

    def of_execution(self, number: int) -> Mapping[ExecutionStage, int]:
        """Return when the stages of an execution ended, as far as it is known."""
        return self._executions.get(number, {})

    def forget_dataset(self, dataset: str) -> None:
        """Remove the appends of a dataset."""
        with self._lock:
            self._appends.pop(dataset, None)

    def _appends_in(self, dataset: str, after: int, through: int) -> list[AppendTimes]:
        """Return the known appends with records after < seq <= through."""
        with self._lock:
            known = self._appends.get(dataset, [])
            start = bisect_left(known, after + 1, key=attrgetter("last"))
            end = bisect_left(known, through + 1, lo=start, key=attrgetter("first"))
            return known[start:end]


@dataclass(frozen=True)
class DeliveryReports:
    """Asks brokers what became of positions of streams, with signed requests, all at once."""

    tls: ssl.SSLContext | None
    now_ms: Callable[[], int]
    timeout_s: float = 2.0
    """For all brokers together, from the resolution of their names to their answers."""
    response_bytes: int = 1 << 20

    async def request(self, asked: Mapping[Broker, Sequence[StreamPosition]]) -> dict[str, DeliveryReport | str]:
        """Return the report of each broker by its name, or why there is none."""
        if not asked:
            return {}
        # One connection for each broker; without a limit, many that hang take none from the others.
        async with HttpClient(tls=self.tls, timeout_s=self.timeout_s, connections=0) as http:
            requests = {one.name: asyncio.create_task(self._request(http, one, asked[one])) for one in asked}
            try:
                await asyncio.wait(requests.values(), timeout=self.timeout_s)
                late = f"does not answer: no response within {self.timeout_s:g} s"
                return {name: one.result() if one.done() else late for name, one in requests.items()}
            finally:
                for one in requests.values():
                    one.cancel()
                await asyncio.gather(*requests.values(), return_exceptions=True)

    async def _request(
        self, http: HttpClient, broker: Broker, streams: Sequence[StreamPosition]
    ) -> DeliveryReport | str:
        url = deliveries_url(broker.callback)
        if url is None:
            return "has a callback without a route for deliveries"
        body = msgspec.json.encode(DeliveryRequest(list(streams)))
        try:
            signature = sign(broker.secret, Recipient(broker.name, raw_path(url)), body, self.now_ms() // 1000, 0)
            headers = {"Content-Type": "application/json", HEADER: signature}
            response = await http.request(
                "POST", url, content=body, headers=headers, most_bytes=self.response_bytes
            )
        except ConnectError as error:
            return f"does not answer: {error.reason}"
        except RequestError as error:
            return f"does not answer: {error.reason.partition(' (')[0]}"  # the rest may quote the server
        if not response.is_success:
            return f"does not report deliveries: status {response.status}"
        try:
            report = msgspec.json.decode(response.content, type=DeliveryReport)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return f"gives a malformed answer: {error}"
        if {(one.subscription, one.position) for one in report.streams} - {
            (one.subscription, one.position) for one in streams
        }:
            return "gives a malformed answer: it reports positions that were not asked for"
        return report
