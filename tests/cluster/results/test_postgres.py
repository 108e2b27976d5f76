from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from pyspark.sql import SparkSession
from support.cluster.results_suite import MATCHED, Open, ResultsSuite, computed, over, payloads, prepare, row

from newsstand.cluster.matching.matcher import SparkMatches
from newsstand.cluster.results.database_postgres import PostgresResultDatabase, copier
from newsstand.cluster.results.stores import ResultStores
from newsstand.errors import BadInput, BadOption

pytestmark = pytest.mark.processes
SCHEMA = "newsstand tests"
"""A name that requires quotes."""


@pytest.fixture
def open_store(url: str) -> Iterator[Open]:
    yield lambda **options: ResultStores(PostgresResultDatabase(url, SCHEMA), **options)
    with psycopg.connect(url) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{SCHEMA}" CASCADE')


def staged(url: str) -> int:
    with psycopg.connect(url) as connection:
        ((count,),) = connection.execute(f'SELECT count(*) FROM "{SCHEMA}".staged').fetchall()
    return int(count)


class TestPostgres(ResultsSuite):
    @pytest.mark.parametrize("table", ["results", "streams", "executions", "channels", "deliveries"])
    def test_failure_at_any_step_leaves_nothing(self, db: ResultStores, url: str, table: str) -> None:
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        change = "UPDATE" if table in ("streams", "channels") else "INSERT"
        with psycopg.connect(url) as other:
            other.execute(f'SET search_path TO "{SCHEMA}"')
            other.execute(
                "CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'injected'; END$$"
            )
            other.execute(f"CREATE TRIGGER stop BEFORE {change} ON {table} EXECUTE FUNCTION stop()")
        with pytest.raises(psycopg.Error, match="injected"):
            db.results.store(over(0, 1), computed([row(one.stream, 1)]))
        assert db.results.extent(one.stream) == (1, 0)
        assert db.results.position("alerts") == 0
        assert db.results.executions("alerts") == db.outbox.due("north") == []
        assert staged(url) == 0
        with psycopg.connect(url) as other:
            other.execute(f'DROP FUNCTION "{SCHEMA}".stop CASCADE')
        assert db.results.store(over(0, 1), computed([row(one.stream, 1)])).results == 1

    def test_rows_of_rejected_task_attempts_left_out(
        self, open_store: Open, url: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each task copies its rows twice, under two tags, like a task that is repeated after its commit."""
        db = open_store(few=0)
        prepare(db)
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        twice = spark.createDataFrame([row(one.stream, number, str(number)) for number in range(1, 9)], MATCHED)
        tokens = []

        def copies_before(url: str, schema: str, token: str) -> object:
            tokens.append(token)
            spark.createDataFrame(twice.collect(), MATCHED).mapInArrow(
                copier(url, schema, token), "tag string, copied bigint"
            ).collect()
            assert staged(url) == 8
            return copier(url, schema, token)

        monkeypatch.setattr("newsstand.cluster.results.database_postgres.copier", copies_before)
        assert db.results.store(over(0, 8), SparkMatches(twice)).results == 8
        assert len(tokens) == 1
        assert payloads(db, one.stream) == [str(number) for number in range(1, 9)]
        assert staged(url) == 0
        db.close()

    def test_connections_closed_by_server_are_replaced(self, db: ResultStores, url: str) -> None:
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'newsstand'"
            )
        assert db.subscriptions.find(one.id) == one

    def test_open_rejects_other_version_and_unreachable_server(
        self, db: ResultStores, open_store: Open, url: str
    ) -> None:
        with psycopg.connect(url) as other:
            other.execute(f'UPDATE "{SCHEMA}".newsstand_schema SET version = 99')
        with pytest.raises(
            BadInput, match=r"schema newsstand tests of \w+: the database of results has schema version 99"
        ):
            open_store()
        with pytest.raises(BadOption, match="PostgreSQL does not answer"):
            ResultStores(PostgresResultDatabase("postgresql://127.0.0.1:1/nothing"))
