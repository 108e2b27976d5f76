"""Addresses at which there is no neighbour."""

from __future__ import annotations

import asyncio

import pytest

from newsstand.broker.overlay_dialling import Hello, NoLink, dial


@pytest.mark.parametrize("url", ["http://a..b:1", f"http://{'a' * 64}.b:1", "http://a:99999", "http://[::1", "x"])
def test_an_address_that_is_none_is_no_link(url: str) -> None:
    with pytest.raises(NoLink):
        asyncio.run(dial(url, "key", Hello("b1"), None))
