"""The table of values that executions read, when subscriptions change while a stream is suspended."""

from __future__ import annotations

import threading
from typing import Any, cast

from newsstand.cluster.tables import Tables
from newsstand.model import Channel


class _Table:
    def __init__(self) -> None:
        self.keys: set[object] = set()

    def change(self, rows: Any) -> None:
        self.keys |= set(rows)

    def remove(self, keys: Any) -> None:
        self.keys -= set(keys)


class _Results:
    def active_streams(self, channel: str, among: Any = None) -> list[tuple[int, tuple[str]]]:
        return [(7, ("fire",))]


def test_a_stream_that_was_subscribed_to_again_before_it_left_the_table_stays() -> None:
    tables = Tables.__new__(Tables)
    table = _Table()
    table.keys = {7, 8}
    vars(tables).update(_updating=threading.Lock(), _results=_Results(), values=lambda channel: table)
    channel = cast(Channel, type("Named", (), {"name": "near"})())
    tables.suspended(channel, 7)  # the store has not suspended it: it had no subscription at that moment
    tables.suspended(channel, 8)
    assert table.keys == {7}
