from __future__ import annotations

import pytest
from support.broker.fixtures import broker_url, press

__all__ = ["broker_url", "press"]


@pytest.fixture(scope="module")
def broker(broker_url: str) -> str:
    return broker_url
