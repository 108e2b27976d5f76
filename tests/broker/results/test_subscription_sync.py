"""A broker's backend subscriptions at a cluster that loses, rejects or delays them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from support.broker.scripted_cluster import ScriptedCluster
from support.event_loops import run

from newsstand.broker.cluster_client.client import (
    ClusterUnavailable,
)
from newsstand.broker.results.subscription_sync import SubscriptionSync, SubscriptionSyncLimits
from newsstand.errors import BadValues
from newsstand.wire.cluster import StreamStatus


class Backing:
    """Backends over a scripted cluster."""

    def __init__(self, linger_s: float = 0) -> None:
        self.cluster = ScriptedCluster()
        self.extents: list[tuple[str, StreamStatus]] = []
        self.now = 0.0
        self.backends = self._sync(linger_s)

    def _sync(self, linger_s: float) -> SubscriptionSync:
        return SubscriptionSync(
            self.cluster,  # type: ignore[arg-type]
            self.cluster.register,
            lambda *standing: self.extents.append(standing),
            lambda: self.now,
            SubscriptionSyncLimits(delay_s=0.05, linger_s=linger_s),
        )

    async def __aenter__(self) -> Backing:
        self.task = asyncio.create_task(self.backends.run())
        return self

    async def restart(self) -> None:
        """Continue as a process that has just started."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.backends = self._sync(self.backends.limits.linger_s)
        self.task = asyncio.create_task(self.backends.run())

    async def __aexit__(self, *_: object) -> None:
        assert not self.task.done(), "it has to go on, whatever happens"
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def frontend(self, kind: str, change: int = 1, channel: str = "of_kind") -> str:
        stream = self.cluster.stream(kind, channel)
        if change > 0:
            self.backends.add_ref(stream, channel, (kind,))
        else:
            self.backends.release_ref(stream)
        return stream

    async def until(self, wanted: Mapping[str, int]) -> None:
        for _ in range(400):
            if self.cluster.frontends == wanted:
                return
            await asyncio.sleep(0.01)
        assert self.cluster.frontends == wanted


def test_new_streams_share_a_call_and_the_last_frontend_drops_its_stream() -> None:
    async def story() -> None:
        async with Backing() as at:
            streams = [at.frontend(str(n)) for n in range(50)]
            await at.until(dict.fromkeys(streams, 1))
            assert at.cluster.calls == ["subscribe 50"]
            at.frontend("0")
            at.frontend("1", -1)
            await at.until({streams[0]: 2} | dict.fromkeys(streams[2:], 1))
            assert streams[1] not in at.backends
            at.frontend("0", -1)
            await at.until(dict.fromkeys([streams[0], *streams[2:]], 1))

    run(story)


def test_stream_kept_when_followed_again_at_once() -> None:
    async def story() -> None:
        async with Backing() as at:
            stream = at.frontend("fire")
            await at.until({stream: 1})
            at.frontend("fire", -1)
            at.frontend("fire")
            await asyncio.sleep(0.1)
            assert at.cluster.frontends == {stream: 1}

    run(story)


def test_lingering_restarts_after_the_cluster_was_unavailable() -> None:
    async def story() -> None:
        async with Backing(linger_s=1000) as at:
            left, other = at.frontend("left"), at.frontend("other")
            await at.until({left: 1, other: 1})
            at.frontend("left", -1)
            at.now += 2000
            at.cluster.failing = [ClusterUnavailable("not now")]
            more = at.frontend("more")
            await at.until({left: 1, other: 1, more: 1})
            at.now += 2000
            at.backends.mark_dirty(left)
            await at.until({other: 1, more: 1})

    run(story)


def test_unused_stream_of_an_earlier_start_lingers_and_is_dropped() -> None:
    async def story() -> None:
        async with Backing(linger_s=1000) as at:
            kept, left = at.frontend("kept"), at.frontend("left")
            await at.until({kept: 1, left: 1})
            await at.restart()
            at.frontend("kept")
            at.backends.drop_unused([kept, left])
            await at.until({kept: 1, left: 1})
            at.now += 2000
            at.backends.mark_dirty(left)
            await at.until({kept: 1})

    run(story)


def test_sync_retries_and_waiters_get_the_error() -> None:
    async def story() -> None:
        async with Backing() as at:
            at.cluster.failing = [ClusterUnavailable("not now"), ClusterUnavailable("not now")]
            stream = at.frontend("fire")
            with pytest.raises(ClusterUnavailable):
                await at.backends.status(stream)
            await at.until({stream: 1})

    run(story)


def test_streams_sent_again_when_cluster_lost_broker() -> None:
    async def story() -> None:
        async with Backing() as at:
            one, two = at.frontend("1"), at.frontend("2")
            await at.until({one: 1, two: 1})
            at.cluster.forget()
            three = at.frontend("3")
            assert await at.backends.status(three) == StreamStatus(0, 1)
            await at.until({one: 1, two: 1, three: 1})

    run(story)


def test_drop_at_a_cluster_that_lost_the_broker_delays_no_other_stream() -> None:
    async def story() -> None:
        async with Backing() as at:
            one, two = at.frontend("1"), at.frontend("2")
            await at.until({one: 1, two: 1})
            at.cluster.forget()
            at.frontend("1", -1)
            await at.until({two: 1})

    run(story)


def test_rejected_subscription_delays_no_other_stream() -> None:
    async def story() -> None:
        async with Backing() as at:
            at.cluster.rejected = {"bad"}
            streams = [at.frontend(str(n)) for n in range(10)]
            bad = at.frontend("x", channel="bad")
            with pytest.raises(BadValues):
                await at.backends.status(bad)
            await at.until(dict.fromkeys(streams, 1))
            assert len(at.cluster.calls) < 12

    run(story)


def test_waiters_get_an_error_when_the_response_lacks_their_stream() -> None:
    async def story() -> None:
        async with Backing() as at:

            async def silent(_: object) -> list[tuple[str, StreamStatus]]:
                return []

            at.cluster.subscribe = silent  # type: ignore[method-assign, assignment]
            with pytest.raises(ClusterUnavailable):
                await at.backends.status(at.frontend("fire"))

    run(story)
