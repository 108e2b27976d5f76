"""Callers of the broker at `url`, a fixture that each module defines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest
from support.broker.calls import login
from support.broker.process import as_operator


@pytest.fixture(scope="module")
def ann(url: str) -> Iterator[httpx.Client]:
    with closing(login(url, "ann")) as client:
        yield client


@pytest.fixture(scope="module")
def bob(url: str) -> Iterator[httpx.Client]:
    with closing(login(url, "bob")) as client:
        yield client


@pytest.fixture(scope="module")
def operator(url: str) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {as_operator()}"}
    with httpx.Client(base_url=url, headers=headers, timeout=20, verify=False) as client:
        yield client
