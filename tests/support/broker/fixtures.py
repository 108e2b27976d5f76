"""Fixtures of several folders: a conftest or a test module imports those that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.broker.press import Press
from support.broker.process import running_broker


@pytest.fixture(scope="module")
def press(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Press]:
    made = Press(tmp_path_factory.mktemp("press"))
    with made.serving():
        yield made


@pytest.fixture
def new_press(tmp_path: Path) -> Iterator[Press]:
    """A press that knows no broker of an earlier test: a name is free only some seconds after its broker's end."""
    made = Press(tmp_path / "press")
    with made.serving():
        yield made


@pytest.fixture(scope="module")
def broker_url(press: Press, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("broker"), press.url) as url:
        yield url
