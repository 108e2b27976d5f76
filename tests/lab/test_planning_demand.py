"""Demand for topics, counted in brokers' access logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from newsstand.broker.event_log import EventLog
from newsstand.cli.main import run
from newsstand.config.files import read_object
from newsstand.errors import BadInput, BadNetwork
from newsstand.lab.planning import demand_of, tables_in
from newsstand.planning.problem import node_numbers

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
        log = EventLog(tmp_path / "logs" / broker / "access", 0)
        for now, topic in requests:
            log.topic_read(now, topic, 2)
        log.flush(12_000)
    return tmp_path / "logs"


@pytest.fixture
def network(tmp_path: Path) -> Path:
    file = tmp_path / "network.json"
    file.write_text(json.dumps(NETWORK))
    return file


def test_demand_counts_requests_by_broker_and_topic(spark: SparkSession, logs: Path) -> None:
    aside = logs / "north" / "access" / "until-3000"
    aside.mkdir()
    (aside / "topics.csv").write_text("time_ms,topic,hops\n2500,storms,1\n2600,stor")
    assert demand_of(spark, [logs], NODES) == {
        'fires, "large"': [0.0, 0.0, 0.2],
        "storms": [0.4, 0.1, 0.0],
    }
    assert demand_of(spark, [logs / name for name in NODES], NODES) == demand_of(spark, [logs], NODES)


def test_plan_command_counts_demand_in_logs(
    lent: Callable[[], AbstractContextManager[None]],
    logs: Path,
    network: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with lent():
        assert run(["plan", str(network), "--demand", str(logs), "--method", "exact", "--json"]) == 0
    message = json.loads(capsys.readouterr().out)
    assert message["assignment"] == {'fires, "large"': [3], "storms": [1]}
    assert message["traffic"] == pytest.approx(0.1)


def test_demand_names_folder_without_logs(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"demand .*nowhere: no such folder"):
        tables_in([tmp_path / "nowhere"])
    with pytest.raises(BadInput, match=r"has no topics\.csv; name the data folders"):
        tables_in([tmp_path])


def test_demand_names_unknown_broker(spark: SparkSession, logs: Path) -> None:
    with pytest.raises(BadInput, match="the network has no broker 'north'"):
        demand_of(spark, [logs], {"south east": 1, "west": 2})


def test_demand_rejects_logs_without_requests(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "north").mkdir()
    (tmp_path / "north" / "topics.csv").write_text("time_ms,topic,hops\n")
    with pytest.raises(BadInput, match="the logs have no requests"):
        demand_of(spark, [tmp_path], NODES)


def test_network_names_default_to_numbers(network: Path) -> None:
    assert node_numbers(str(network), read_object(network)) == NODES
    network.write_text(json.dumps({"nodes": 2}))
    assert node_numbers(str(network), read_object(network)) == {"1": 1, "2": 2}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b"], "names has 2 values, not 3"),
        (["a", "b", "a"], "names has 'a' twice"),
        (["a", "b", 3], r"names\[2\] is 3, not a name"),
        ("abc", "names is 'abc', not a list"),
    ],
)
def test_network_names_reject_invalid_names(network: Path, names: object, message: str) -> None:
    network.write_text(json.dumps(NETWORK | {"names": names}))
    with pytest.raises(BadNetwork, match=message):
        node_numbers(str(network), read_object(network))
