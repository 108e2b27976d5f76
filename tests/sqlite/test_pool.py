from __future__ import annotations

import pytest

from newsstand.errors import BadInput
from newsstand.sqlite.database import Pool


class FakeConnection:
    def __init__(self) -> None:
        self.closed = False
        self.cut = False

    def close(self) -> None:
        self.closed = True


def test_connection_lent_to_one_user_at_a_time() -> None:
    pool = Pool("here", FakeConnection)
    with pool.connection() as first, pool.connection() as second:
        assert first is not second
    with pool.connection() as again:
        assert again is first
    assert not again.closed


def test_broken_connection_is_closed_and_replaced() -> None:
    pool = Pool("here", FakeConnection, lambda one: not one.cut)
    with pool.connection() as first:
        first.cut = True
    with pool.connection() as second:
        assert second is not first
    assert first.closed


def test_idle_connections_are_limited() -> None:
    pool = Pool("here", FakeConnection, idle=3)
    taken = [pool.connection() for _ in range(5)]
    connections = [one.__enter__() for one in taken]
    for one in taken:
        one.__exit__(None, None, None)
    assert sum(one.closed for one in connections) == 2


def test_closed_pool_lends_and_keeps_no_connection() -> None:
    pool = Pool("here", FakeConnection)
    with pool.connection() as late:
        pool.close()
    assert late.closed
    with pytest.raises(BadInput, match="here: the database is closed"), pool.connection():
        pass
