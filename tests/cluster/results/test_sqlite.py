from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from support.cluster.results_suite import Open, ResultsSuite, computed, over, payloads, row

from newsstand.cluster.results.database_sqlite import SqliteResultDatabase
from newsstand.cluster.results.retention import OLD_EXECUTIONS
from newsstand.cluster.results.stores import ResultStores
from newsstand.errors import BadInput, NoRoom


@pytest.fixture
def open_store(tmp_path: Path) -> Open:
    return lambda **options: ResultStores(SqliteResultDatabase(tmp_path / "results.sqlite"), **options)


class TestSqlite(ResultsSuite):
    @pytest.mark.parametrize("table", ["results", "streams", "executions", "channels", "deliveries"])
    def test_failure_at_any_step_leaves_nothing(self, db: ResultStores, tmp_path: Path, table: str) -> None:
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        change = "UPDATE" if table in ("streams", "channels") else "INSERT"
        with sqlite3.connect(tmp_path / "results.sqlite") as other:
            other.execute(
                f"CREATE TRIGGER stop BEFORE {change} ON {table} BEGIN SELECT raise(ABORT, 'injected'); END"
            )
        with pytest.raises(sqlite3.IntegrityError, match="injected"):
            db.results.store(over(0, 1), computed([row(one.stream, 1)]))
        assert db.results.extent(one.stream) == (1, 0)
        assert db.results.position("alerts") == 0
        assert db.results.executions("alerts") == db.outbox.due("north") == []
        with sqlite3.connect(tmp_path / "results.sqlite") as other:
            other.execute("DROP TRIGGER stop")
        other.close()
        assert db.results.store(over(0, 1), computed([row(one.stream, 1)])).results == 1

    def test_full_disk_raises_and_leaves_stored_results(self, db: ResultStores) -> None:
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        db.results.store(over(0, 1), computed([row(one.stream, 1, "kept")]))
        database = db.database
        assert isinstance(database, SqliteResultDatabase)
        # As a disk that ends after the pages that there are, on each connection.
        with database.connection() as connection:
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(NoRoom, match=r"results\.sqlite: no space left"):
            db.results.store(over(1, 2), computed([row(one.stream, 2, "x" * 100_000)]))
        assert payloads(db, one.stream) == ["kept"]
        assert db.results.position("alerts") == 1
        with database.connection() as connection:
            connection.execute("PRAGMA max_page_count = 1000000")
        assert db.results.store(over(1, 2), computed([row(one.stream, 2, "x" * 100_000)])).results == 1

    def test_old_executions_found_by_index(self, db: ResultStores) -> None:
        with db.database.reading() as transaction:
            plan = transaction.rows(f"EXPLAIN QUERY PLAN {OLD_EXECUTIONS}", name="alerts", limit_ms=1, limit=1)
        steps = " ".join(str(step[3]) for step in plan)
        assert "executions_by_time (channel=? AND at_ms>? AND at_ms<?)" in steps
        assert "TEMP B-TREE" not in steps

    def test_open_rejects_other_version_and_other_files(
        self, db: ResultStores, open_store: Open, tmp_path: Path
    ) -> None:
        with sqlite3.connect(tmp_path / "results.sqlite") as other:
            other.execute("PRAGMA user_version = 99")
        other.close()
        with pytest.raises(BadInput, match=r"results\.sqlite: the database of results has schema version 99"):
            open_store()
        (tmp_path / "text").write_text("no database at all " * 100)
        with pytest.raises(BadInput, match="text: not a database of results"):
            ResultStores(SqliteResultDatabase(tmp_path / "text"))
        with pytest.raises(BadInput, match="its folder must exist"):
            ResultStores(SqliteResultDatabase(tmp_path / "nowhere" / "results.sqlite"))
