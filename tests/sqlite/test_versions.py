"""Files of newer versions, of brokers and of the coordinator."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from newsstand.broker.sessions.store import SubscriberStore
from newsstand.broker.topics.database import TopicDatabase
from newsstand.coordinator.store.sqlite import CoordinatorStore
from newsstand.errors import BadInput
from newsstand.sqlite.database import Closable


@pytest.mark.parametrize(
    ("open_file", "content"),
    [
        (lambda path: SubscriberStore(path, replicate=False), "subscribers"),
        (TopicDatabase, "topics"),
        (CoordinatorStore, "the coordinator"),
    ],
)
def test_file_of_a_newer_version_is_rejected(
    tmp_path: Path, open_file: Callable[[Path], Closable], content: str
) -> None:
    path = tmp_path / "file.sqlite"
    open_file(path).close()
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA user_version = 99")
    with pytest.raises(BadInput, match=rf"file\.sqlite: the database of {content} has schema version 99"):
        open_file(path)
