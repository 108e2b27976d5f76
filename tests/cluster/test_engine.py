"""Which executions wait for a thread: one of each channel."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from newsstand.cluster import engine as engine_module
from newsstand.cluster.engine import Engine
from newsstand.cluster.executions import Running


class Held:
    """Executions that do not end before they are let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.executed: list[str] = []

    def advance(self, running: Running, through: int, batch: object) -> None:
        self.executed.append(running.channel.name)
        assert self.let_go.wait(30)

    def leave(self, running: Running) -> None:
        """Nothing is to be cancelled."""


def continuous(name: str) -> Running:
    channel = SimpleNamespace(name=name, new="reports", period_s=None)
    return Running(cast("Any", channel), cast("Any", None), {})


def test_a_channel_that_waits_for_a_thread_is_not_submitted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(engine_module, "PATIENCE_S", 0.0)
    executions, nothing = Held(), cast("Any", None)
    engine = Engine(nothing, nothing, nothing, cast("Any", executions), tmp_path / "scratch", 10)
    try:
        channels = [continuous("first"), continuous("second")]
        for running in channels:
            engine.run(running)
        for through in (1, 2, 3):
            engine._advance(engine._continuous("reports"), through, None)
            engine._advance(channels, through, None)  # a micro-batch that chose them earlier
        executions.let_go.set()
        engine._shares.shutdown(wait=True)
        assert executions.executed == ["first", "second"]
        assert engine._executing == set()
        assert engine._behind == {"first", "second"}
    finally:
        executions.let_go.set()
        engine.stop()


def test_a_channel_whose_execution_is_cancelled_is_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(engine_module, "PATIENCE_S", 0.0)
    executions, nothing = Held(), cast("Any", None)
    engine = Engine(nothing, nothing, nothing, cast("Any", executions), tmp_path / "scratch", 10)
    first, second = continuous("first"), continuous("second")
    for running in (first, second):
        engine.run(running)
    try:
        engine._advance([first, second], 1, None)
        engine._shares.shutdown(wait=False, cancel_futures=True)
        assert engine._executing == {first}
    finally:
        executions.let_go.set()
        engine.stop()
    assert engine._executing == set()
