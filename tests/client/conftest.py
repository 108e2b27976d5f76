from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Where the press, the processes and the stand-in of the cluster live.
sys.path += [str(Path(__file__).parents[1] / room) for room in ("broker", "cluster")]

from broker_process import running_broker
from press import Press


@pytest.fixture(scope="module")
def press(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Press]:
    made = Press(tmp_path_factory.mktemp("press"))
    with made.serving():
        yield made


@pytest.fixture(scope="module")
def broker(press: Press, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("broker"), press.url) as url:
        yield url
