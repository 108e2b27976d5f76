"""Brokers are told what moved: signed requests, in order for each broker, repeated until they are answered.

What is to be told stands in the store's outbox, so a restart loses nothing; a broker may be told twice, when its
answer was lost, and knows by the number of the delivery. One task serves one broker: another that hangs costs it
nothing. A broker that does not answer for long is marked away; it gets one summary when it answers again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from newsstand.cluster.notification import PING, body_of
from newsstand.cluster.own_loop import OwnLoop
from newsstand.cluster.results import Delivery, Results
from newsstand.errors import BadOption
from newsstand.model import Broker
from newsstand.signing import HEADER, Recipient, sign

_log = logging.getLogger(__name__)

Status = dict[str, int | bool | str | None]
"""How things stand with a broker: pending, attempts, away, last_told_ms, last_error."""

MOST_PENDING = 1000
"""What `status` counts up to."""

_BYTES_A_SECOND = 1 << 20
"""What a broker is expected to take in; a large notification is given more time."""

_ANSWER_BYTES = 4096
"""How much of an answer is read; a short one leaves the connection usable."""


@dataclass
class _Served:
    """A broker, and what its task and the others share."""

    broker: Broker
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    returned: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    failures: int = 0
    failing_since: float = 0.0
    last_told_ms: int | None = None
    last_error: str | None = None


def trusting(authority: Path | None) -> ssl.SSLContext | bool:
    """Whom to trust in brokers: the certificates in a file, or those of the system."""
    if authority is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(authority))
    except OSError as error:
        raise BadOption(f"{authority}: no certificates can be read ({error.strerror})") from error


def signed(broker: Broker, url: str, body: bytes, timestamp: int, delivery: int) -> str:
    """Return the signature of a request to a broker, for the path that the URL has in the request."""
    recipient = Recipient(broker.name, httpx.URL(url).raw_path.decode("ascii"))
    return sign(broker.secret, recipient, body, timestamp, delivery)


class Notifier:
    """Tells brokers what stands in their outboxes. `now_ms` is the clock, `jitter` gives numbers from 0 to 1."""

    def __init__(
        self,
        results: Results,
        now_ms: Callable[[], int],
        jitter: Callable[[], float] = random.random,
        *,
        is_push: Callable[[str], bool] = lambda channel: False,
        told: Callable[[str, bool], None] = lambda broker, answered: None,
        timeout_s: float = 10.0,
        base_s: float = 0.2,
        cap_s: float = 30.0,
        away_after_s: float = 300.0,
        push_results: int = 1000,
        push_bytes: int = 4 << 20,
        authority: Path | None = None,
    ) -> None:
        """`authority`: a file of certificates to trust in brokers, if not the system's."""
        self._results = results
        self._now_ms = now_ms
        self._jitter = jitter
        self._is_push = is_push
        self._told = told
        self._timeout_s = timeout_s
        self._base_s = base_s
        self._cap_s = cap_s
        self._away_after_s = away_after_s
        self._push_limits = (push_results, push_bytes)
        self._verify = trusting(authority)
        self._served: dict[str, _Served] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None
        self._own = OwnLoop("notifier", self.run)

    # From any thread

    def start(self) -> None:
        """Run in a thread of its own until `stop`."""
        self._own.start()

    def stop(self) -> None:
        """End the thread; a request under way is given up and will be repeated."""
        self._own.stop()

    def wake(self) -> None:
        """Look at the outboxes: called after each execution that was stored, and when brokers came or went."""
        self._soon(lambda: self._changed.set() if self._changed is not None else None)

    def returned(self, broker: str) -> None:
        """A broker has registered, perhaps again: if it was away, it is back."""
        self._results.mark_back(broker, self._now_ms())

        def hurry() -> None:
            if (served := self._served.get(broker)) is not None:
                served.returned.set()

        self._soon(hurry)
        self.wake()

    def status(self) -> dict[str, Status]:
        """How things stand with each broker."""
        return {broker.name: self.status_of(broker.name) for broker in self._results.brokers()}

    def status_of(self, broker: str) -> Status:
        """How things stand with one broker; `pending` counts up to MOST_PENDING."""
        due = self._results.due(broker, MOST_PENDING)
        served = self._served.get(broker)
        return {
            "pending": len(due),
            "attempts": due[0].attempts if due else 0,
            "away": self._results.away(broker),
            "last_told_ms": served.last_told_ms if served else None,
            "last_error": served.last_error if served else None,
        }

    def _soon(self, act: Callable[[], object]) -> None:
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(act)
        except RuntimeError:
            # It has stopped in between; whoever runs next looks at the outboxes first.
            return

    # Inside the loop

    async def run(self) -> None:
        """Serve all brokers until cancelled."""
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        # One broker takes one connection at a time: no limit, so that many that hang take none from the others.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        async with httpx.AsyncClient(
            limits=limits, timeout=self._timeout_s, trust_env=False, verify=self._verify
        ) as client:
            try:
                while True:
                    self._changed.clear()
                    try:
                        await self._look(client)
                    except Exception as error:
                        _log.error("notifier cannot read the list of brokers: %s", error)
                        await asyncio.sleep(self._base_s)
                        continue
                    await self._changed.wait()
            finally:
                self._loop = None
                tasks = [served.task for served in self._served.values() if served.task is not None]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                self._served.clear()

    async def _look(self, client: httpx.AsyncClient) -> None:
        """One task for each broker that there is, and each looks at its outbox."""
        known = {broker.name: broker for broker in await asyncio.to_thread(self._results.brokers)}
        for name in self._served.keys() - known.keys():
            dismissed = self._served.pop(name)
            if dismissed.task is not None:
                dismissed.task.cancel()
        for name, broker in known.items():
            served = self._served.setdefault(name, _Served(broker))
            served.broker = broker
            served.woken.set()
            if served.task is None:
                served.task = asyncio.create_task(self._serve(client, served), name=f"tell {name}")

    async def _serve(self, client: httpx.AsyncClient, served: _Served) -> None:
        while True:
            try:
                served.woken.clear()
                if await asyncio.to_thread(self._results.away, served.broker.name):
                    await self._probe(client, served)
                elif due := await asyncio.to_thread(self._results.due, served.broker.name):
                    await self._tell(client, served, due[0])
                else:
                    await served.woken.wait()
            except Exception as error:
                served.last_error = f"{type(error).__name__}: {error}"
                _log.error("notifying broker '%s' failed: %s", served.broker.name, served.last_error)
                await self._back_off(served)

    async def _tell(self, client: httpx.AsyncClient, served: _Served, delivery: Delivery) -> None:
        push = delivery.channel is not None and self._is_push(delivery.channel)
        limits = self._push_limits if push else None
        body = await asyncio.to_thread(body_of, self._results, delivery, limits)
        answered = await self._post(client, served, body, delivery.id)
        self._told(served.broker.name, answered)
        if answered:
            served.last_told_ms = self._now_ms()
            await asyncio.to_thread(self._results.told, delivery.id, served.last_told_ms)
            served.failures = 0
            return
        await asyncio.to_thread(self._results.attempted, delivery.id)
        now = asyncio.get_running_loop().time()
        if served.failures == 0:
            served.failing_since = now
        if now - served.failing_since >= self._away_after_s:
            _log.warning("broker '%s' is away: %s", served.broker.name, served.last_error)
            await asyncio.to_thread(self._results.mark_away, served.broker.name)
        await self._back_off(served)

    async def _probe(self, client: httpx.AsyncClient, served: _Served) -> None:
        if await self._post(client, served, PING, 0):
            await asyncio.to_thread(self._results.mark_back, served.broker.name, self._now_ms())
            served.failures = 0
        else:
            await self._back_off(served)

    async def _back_off(self, served: _Served) -> None:
        """Exponential, with full jitter; cut short when the broker registers again."""
        if served.failures == 0:
            served.failing_since = asyncio.get_running_loop().time()
        served.failures += 1
        longest = min(self._cap_s, self._base_s * 2 ** min(served.failures - 1, 60))
        try:
            async with asyncio.timeout(self._jitter() * longest):
                await served.returned.wait()
                served.failures = 0
        except TimeoutError:
            pass
        served.returned.clear()

    async def _post(self, client: httpx.AsyncClient, served: _Served, body: bytes, delivery: int) -> bool:
        """Whether the broker answered with 2xx, in time. Redirects are not followed."""
        broker = served.broker
        try:
            signature = signed(broker, broker.callback, body, self._now_ms() // 1000, delivery)
            headers = {"Content-Type": "application/json", HEADER: signature}
            # A limit for the whole: httpx only limits each step, and an answer may come byte by byte.
            async with (
                asyncio.timeout(self._timeout_s + len(body) / _BYTES_A_SECOND),
                client.stream("POST", broker.callback, content=body, headers=headers) as answer,
            ):
                read = 0
                async for piece in answer.aiter_raw():
                    read += len(piece)
                    if read >= _ANSWER_BYTES:
                        break
        except TimeoutError:
            served.last_error = f"no answer within {self._timeout_s:g} s"
            return False
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            served.last_error = f"{type(error).__name__}: {error}"
            return False
        served.last_error = None if answer.is_success else f"answered {answer.status_code}"
        return answer.is_success
