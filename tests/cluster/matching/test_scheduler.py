"""Executions that wait for a thread: one of each channel."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

from support.waiting import eventually

from newsstand.cluster.matching.executor import RunningChannel
from newsstand.cluster.matching.scheduler import Scheduler, SchedulerLimits


class BlockedExecutions:
    """Executions that do not end before they are let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.executed: list[str] = []

    def advance(self, running: RunningChannel, through: int, batch: object) -> None:
        self.executed.append(running.channel.name)
        assert self.let_go.wait(30)

    def remove(self, running: RunningChannel) -> None:
        """Nothing is to be cancelled."""


def continuous(name: str) -> RunningChannel:
    channel = SimpleNamespace(name=name, new="reports", period_s=None)
    return RunningChannel(cast("Any", channel), cast("Any", None), {})


def scheduler_of(executions: BlockedExecutions) -> Scheduler:
    nothing = cast("Any", None)
    limits = SchedulerLimits(concurrency=1, patience_s=0.0)
    return Scheduler(nothing, nothing, nothing, cast("Any", executions), 10, limits)


def test_waiting_channel_is_not_submitted_again() -> None:
    executions = BlockedExecutions()
    scheduler = scheduler_of(executions)
    try:
        channels = [continuous("first"), continuous("second")]
        for running in channels:
            scheduler.add(running)
        for through in (1, 2, 3):
            scheduler.advance(scheduler.continuous("reports"), through, None)
            scheduler.advance(channels, through, None)  # a micro-batch that chose them earlier
        executions.let_go.set()
        eventually(lambda: scheduler.executing == [])
        assert executions.executed == ["first", "second"]
        assert scheduler.behind == ["first", "second"]
    finally:
        executions.let_go.set()
        scheduler.stop()


def test_channel_released_when_execution_is_cancelled() -> None:
    executions = BlockedExecutions()
    scheduler = scheduler_of(executions)
    first, second = continuous("first"), continuous("second")
    for running in (first, second):
        scheduler.add(running)
    try:
        scheduler.advance([first, second], 1, None)
        assert scheduler.executing == ["first", "second"]
        stopping = threading.Thread(target=scheduler.stop)
        stopping.start()
        eventually(lambda: scheduler.executing == ["first"])
    finally:
        executions.let_go.set()
    stopping.join()
    assert scheduler.executing == []
    assert executions.executed == ["first"]
