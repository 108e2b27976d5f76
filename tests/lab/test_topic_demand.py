"""Demand for topics, counted in brokers' access logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from newsstand.broker.access_log import AccessLog
from newsstand.cli.main import run
from newsstand.errors import BadInput, BadNetwork
from newsstand.lab.topic_demand import demand_of, tables_in
from newsstand.planning.json_file import read_object
from newsstand.planning.network_file import names_of

NODES = {"north": 1, "south east": 2, "west": 3}
NETWORK = {
    "nodes": 3,
    "names": [*NODES],
    "edges": [[1, 2], [2, 3]],
    "replication": 1,
    "storage_capacity": 1,
    "storages": 2,
}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Ten seconds: storms are asked for in the north and the south east, fires in the west."""
    asked = {
        "north": [(1_000, "storms"), (2_000, "storms"), (11_000, "storms")],
        "south east": [(4_000, "storms")],
        "west": [(5_000, 'fires, "large"'), (6_000, 'fires, "large"')],
    }
    for broker, requests in asked.items():
        log = AccessLog(tmp_path / "logs" / broker / "access", 0)
        for now, topic in requests:
            log.past(now, topic, 2)
        log.flush(12_000)
    return tmp_path / "logs"


@pytest.fixture
def network(tmp_path: Path) -> Path:
    file = tmp_path / "network.json"
    file.write_text(json.dumps(NETWORK))
    return file


def test_requests_are_counted_by_broker_and_topic(spark: SparkSession, logs: Path) -> None:
    aside = logs / "north" / "access" / "until-3000"
    aside.mkdir()
    (aside / "topics.csv").write_text("time_ms,topic,hops\n2500,storms,1\n2600,stor")
    assert demand_of(spark, [logs], NODES) == {
        'fires, "large"': [0.0, 0.0, 0.2],
        "storms": [0.4, 0.1, 0.0],
    }
    assert demand_of(spark, [logs / name for name in NODES], NODES) == demand_of(spark, [logs], NODES)


def test_a_plan_follows_the_logs(
    lent: Callable[[], AbstractContextManager[None]],
    logs: Path,
    network: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with lent():
        assert run(["plan", str(network), "--demand", str(logs), "--method", "exact", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["assignment"] == {'fires, "large"': [3], "storms": [1]}
    assert told["traffic"] == pytest.approx(0.1)


def test_folders_without_logs_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--demand .*nowhere: no such folder"):
        tables_in([tmp_path / "nowhere"])
    with pytest.raises(BadInput, match=r"there is no topics\.csv in it"):
        tables_in([tmp_path])


def test_a_broker_that_the_network_does_not_have_is_named(spark: SparkSession, logs: Path) -> None:
    with pytest.raises(BadInput, match="no broker of the network is called 'north'"):
        demand_of(spark, [logs], {"south east": 1, "west": 2})


def test_logs_without_requests_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "north").mkdir()
    (tmp_path / "north" / "topics.csv").write_text("time_ms,topic,hops\n")
    with pytest.raises(BadInput, match="nobody has asked for anything"):
        demand_of(spark, [tmp_path], NODES)


def test_brokers_have_names_or_are_called_by_their_numbers(network: Path) -> None:
    assert names_of(str(network), read_object(network)) == NODES
    network.write_text(json.dumps({"nodes": 2}))
    assert names_of(str(network), read_object(network)) == {"1": 1, "2": 2}


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["a", "b"], "names has 2 values, not 3"),
        (["a", "b", "a"], "names has 'a' twice"),
        (["a", "b", 3], r"names\[2\] is 3, not a name"),
        ("abc", "names is 'abc', not a list"),
    ],
)
def test_bad_names_are_refused(network: Path, names: object, told: str) -> None:
    network.write_text(json.dumps(NETWORK | {"names": names}))
    with pytest.raises(BadNetwork, match=told):
        names_of(str(network), read_object(network))
