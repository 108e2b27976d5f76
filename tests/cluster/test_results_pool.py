from __future__ import annotations

import pytest

from newsstand.cluster.results_pool import MOST_IDLE, Pool
from newsstand.errors import BadInput


class Line:
    def __init__(self) -> None:
        self.closed = False
        self.cut = False

    def close(self) -> None:
        self.closed = True


def test_a_connection_is_for_one_at_a_time_and_then_for_the_next() -> None:
    pool = Pool("here", Line)
    with pool.connection() as first, pool.connection() as second:
        assert first is not second
    with pool.connection() as again:
        assert again is first
    assert not again.closed


def test_one_that_was_cut_is_closed_and_replaced() -> None:
    pool = Pool("here", Line, lambda line: not line.cut)
    with pool.connection() as first:
        first.cut = True
    with pool.connection() as second:
        assert second is not first
    assert first.closed


def test_no_more_are_kept_than_may_be_idle() -> None:
    pool = Pool("here", Line)
    taken = [pool.connection() for _ in range(MOST_IDLE + 2)]
    lines = [one.__enter__() for one in taken]
    for one in taken:
        one.__exit__(None, None, None)
    assert sum(line.closed for line in lines) == 2


def test_a_closed_pool_gives_nothing_and_keeps_nothing() -> None:
    pool = Pool("here", Line)
    with pool.connection() as late:
        pool.close()
    assert late.closed
    with pytest.raises(BadInput, match="here: the store of results is closed"), pool.connection():
        pass
