"""Limits of request heads and connections of a broker and a coordinator, as processes."""

from __future__ import annotations

from pathlib import Path

from support.broker.press import Press
from support.broker.process import start_broker, start_coordinator, wait_ready
from support.server_limits import CONNECTIONS, require_limits


def configured(folder: Path, part: str) -> Path:
    file = folder / f"{part}.toml"
    file.write_text(f"[{part}]\nmax_connections_per_address = {CONNECTIONS}\n")
    return file


def test_broker_limits_heads_and_connections(press: Press, tmp_path: Path) -> None:
    broker = start_broker(tmp_path / "edge", press.url, "edge", 0, "--config", configured(tmp_path, "broker"))
    try:
        wait_ready(broker.url)
        require_limits(broker.url)
    finally:
        assert broker.stop() == 0


def test_coordinator_limits_heads_and_connections(tmp_path: Path) -> None:
    coordinator = start_coordinator(tmp_path / "data", 0, "--config", configured(tmp_path, "coordinator"))
    try:
        wait_ready(coordinator.url)
        require_limits(coordinator.url)
    finally:
        assert coordinator.stop() == 0
