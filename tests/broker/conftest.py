from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import start_broker, wait_ready
from press import Press


@pytest.fixture(scope="module")
def press(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Press]:
    made = Press(tmp_path_factory.mktemp("press"))
    with made.serving() as url:
        made.url = url  # type: ignore[attr-defined]
        yield made


@pytest.fixture(scope="module")
def broker_url(press: Press, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker = start_broker(tmp_path_factory.mktemp("broker"), press.url)  # type: ignore[attr-defined]
    try:
        wait_ready(broker.url)
        yield broker.url
    finally:
        broker.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
