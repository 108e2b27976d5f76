from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from results_suite import Open, ResultsSuite, computed, over, payloads, row

from newsstand.cluster.results import Results
from newsstand.cluster.results_retention import OLD_EXECUTIONS
from newsstand.cluster.results_sqlite import SqliteResults
from newsstand.errors import BadInput, NoRoom


@pytest.fixture
def open_store(tmp_path: Path) -> Open:
    return lambda **options: SqliteResults(tmp_path / "results.sqlite", **options)


class TestSqlite(ResultsSuite):
    @pytest.mark.parametrize("table", ["results", "streams", "executions", "channels", "deliveries"])
    def test_a_failure_at_any_step_leaves_nothing(self, store: Results, tmp_path: Path, table: str) -> None:
        (one,) = store.subscribe("north", "alerts", {("fire",): 1})
        change = "UPDATE" if table in ("streams", "channels") else "INSERT"
        with sqlite3.connect(tmp_path / "results.sqlite") as other:
            other.execute(
                f"CREATE TRIGGER stop BEFORE {change} ON {table} BEGIN SELECT raise(ABORT, 'injected'); END"
            )
        with pytest.raises(sqlite3.IntegrityError, match="injected"):
            store.store(over(0, 1), computed([row(one.stream, 1)]))
        assert store.head(one.stream) == (1, 0)
        assert store.position("alerts") == 0
        assert store.executions("alerts") == store.due("north") == []
        with sqlite3.connect(tmp_path / "results.sqlite") as other:
            other.execute("DROP TRIGGER stop")
        other.close()
        assert store.store(over(0, 1), computed([row(one.stream, 1)])).results == 1

    def test_a_full_disk_is_told_and_what_was_stored_is_intact(self, store: Results) -> None:
        (one,) = store.subscribe("north", "alerts", {("fire",): 1})
        store.store(over(0, 1), computed([row(one.stream, 1, "kept")]))
        assert isinstance(store, SqliteResults)
        # As a disk that ends after the pages that there are, on each connection.
        with store._connection() as connection:
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(NoRoom, match=r"results\.sqlite: no room left"):
            store.store(over(1, 2), computed([row(one.stream, 2, "x" * 100_000)]))
        assert payloads(store, one.stream) == ["kept"]
        assert store.position("alerts") == 1
        with store._connection() as connection:
            connection.execute("PRAGMA max_page_count = 1000000")
        assert store.store(over(1, 2), computed([row(one.stream, 2, "x" * 100_000)])).results == 1

    def test_a_store_of_the_version_before_is_brought_up(
        self, store: Results, open_store: Open, tmp_path: Path
    ) -> None:
        (one,) = store.subscribe("north", "alerts", {("abc",): 1})
        store.close()
        with sqlite3.connect(tmp_path / "results.sqlite") as other:
            other.execute("DROP TABLE suspensions")
            other.execute("UPDATE newsstand_schema SET version = 2")
        other.close()
        again = open_store()
        again.suspend("alerts", one.stream, "no number", "first", 1)
        assert [found.stream for found in again.suspensions("alerts")] == [one.stream]
        again.close()

    def test_what_is_old_is_found_by_time(self, store: Results) -> None:
        assert isinstance(store, SqliteResults)
        with store._reading() as transaction:
            plan = transaction.rows(f"EXPLAIN QUERY PLAN {OLD_EXECUTIONS}", name="alerts", limit_ms=1, limit=1)
        told = " ".join(str(step[3]) for step in plan)
        assert "executions_by_time (channel=? AND at_ms>? AND at_ms<?)" in told
        assert "TEMP B-TREE" not in told

    def test_another_version_and_other_files_are_refused(
        self, store: Results, open_store: Open, tmp_path: Path
    ) -> None:
        with sqlite3.connect(tmp_path / "results.sqlite") as other:
            other.execute("UPDATE newsstand_schema SET version = 99")
        other.close()
        with pytest.raises(BadInput, match=r"results\.sqlite: its results are of schema version 99"):
            open_store()
        (tmp_path / "text").write_text("no database at all " * 100)
        with pytest.raises(BadInput, match="this is no store of results"):
            SqliteResults(tmp_path / "text")
        with pytest.raises(BadInput, match="its folder must exist"):
            SqliteResults(tmp_path / "nowhere" / "results.sqlite")
