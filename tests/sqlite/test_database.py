from __future__ import annotations

import errno
import sqlite3
import stat
from pathlib import Path

import pytest

from newsstand.errors import BadInput, NoRoom, Unavailable
from newsstand.sqlite.database import Schema, SqliteFile

TABLE = "CREATE TABLE words (what TEXT PRIMARY KEY, text TEXT);"
RENAMED = "ALTER TABLE words RENAME TO meta; ALTER TABLE meta RENAME COLUMN what TO key;"
SCHEMA = Schema("things", (TABLE, RENAMED))


def version_of(path: Path) -> int:
    connection = sqlite3.connect(path)
    ((version,),) = connection.execute("PRAGMA user_version")
    connection.close()
    return int(version)


def test_fresh_file_has_newest_version_and_is_private(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "things.sqlite", SCHEMA)
    connection = file.open()
    connection.execute("INSERT INTO meta VALUES ('a', 'b')")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert version_of(file.path) == 2
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    connection.close()


def test_older_file_is_migrated_in_order_and_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "things.sqlite"
    older = SqliteFile(path, Schema("things", (TABLE,))).open()
    older.execute("INSERT INTO words VALUES ('a', 'b')")
    older.close()
    assert version_of(path) == 1
    connection = SqliteFile(path, SCHEMA).open()
    assert connection.execute("SELECT key, text FROM meta").fetchall() == [("a", "b")]
    assert version_of(path) == 2
    connection.close()


def test_failed_migration_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "things.sqlite"
    SqliteFile(path, Schema("things", (TABLE,))).open().close()
    with pytest.raises(
        BadInput, match=r"things\.sqlite: cannot open the database of things \(no such table: nowhere"
    ):
        SqliteFile(path, Schema("things", (TABLE, RENAMED + "DELETE FROM nowhere;"))).open()
    assert version_of(path) == 1
    SqliteFile(path, SCHEMA).open().close()


@pytest.mark.parametrize(
    ("found", "migrations", "supported"),
    [(3, (TABLE, RENAMED), "1 to 2"), (9, (TABLE, RENAMED), "1 to 2"), (2, (TABLE,), "1")],
)
def test_unsupported_version_is_rejected(
    tmp_path: Path, found: int, migrations: tuple[str, ...], supported: str
) -> None:
    path = tmp_path / "things.sqlite"
    with sqlite3.connect(path) as other:
        other.execute(f"PRAGMA user_version = {found}")
    other.close()
    with pytest.raises(
        BadInput,
        match=rf"things\.sqlite: the database of things has schema version {found}; this Newsstand supports "
        rf"version {supported}\. Start the Newsstand that wrote it",
    ):
        SqliteFile(path, Schema("things", migrations)).open()


def test_exclusive_file_rejects_second_process(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "things.sqlite", SCHEMA, exclusive=True, pragmas={"busy_timeout": 10})
    first = file.open()
    with pytest.raises(BadInput, match=r"things\.sqlite: used by another process; stop it or name another data"):
        file.open()
    first.close()
    file.open().close()


def test_other_files_and_missing_folders_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all " * 100)
    with pytest.raises(BadInput, match="text: not a database of things; name another file"):
        SqliteFile(tmp_path / "text", SCHEMA).open()
    with pytest.raises(BadInput, match="its folder must exist and be writable"):
        SqliteFile(tmp_path / "nowhere" / "things.sqlite", SCHEMA).open()


def test_full_disk_rolls_back_and_raises_no_room(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "things.sqlite", SCHEMA)
    connection = file.open()
    ((pages,),) = connection.execute("PRAGMA page_count")
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(NoRoom, match=r"things\.sqlite: no space left on the disk"), file.transaction(connection):
        connection.execute("INSERT INTO meta VALUES ('a', ?)", ("x" * 100_000,))
    assert connection.execute("SELECT * FROM meta").fetchall() == []
    with pytest.raises(NoRoom), file.faults():
        raise OSError(errno.ENOSPC, "no space")
    connection.close()


def test_lock_of_another_connection_raises_unavailable(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "things.sqlite", SCHEMA, pragmas={"busy_timeout": 10})
    connection, other = file.open(), file.connect()
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked by another process") as error, file.transaction(connection):
        pass
    assert error.value.reason == "the database of things is locked by another process"
    other.execute("ROLLBACK")
    with pytest.raises(sqlite3.IntegrityError), file.transaction(connection):
        connection.executemany("INSERT INTO meta VALUES (?, 'b')", ["a", "a"])
    assert connection.execute("SELECT * FROM meta").fetchall() == []
    connection.close()
    other.close()
