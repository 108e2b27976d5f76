"""Simulations of push-caching as tasks, and `newsstand push-cache`."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from push_traces import demand, line, write_network, write_trace
from pyspark.sql import SparkSession

from newsstand.cli.main import run
from newsstand.errors import BadInput, BadOption
from newsstand.lab.push_cache import simulated
from newsstand.lab.push_cache_demand import PushDemand
from newsstand.lab.push_cache_internet import internet_of
from newsstand.lab.push_cache_outcome import PushOutcome
from newsstand.lab.push_cache_reading import demand_of
from newsstand.lab.push_cache_runs import Network, PushCacheRuns, read_kept, uncached, without_pushing
from newsstand.lab.push_cache_setting import PushCacheSetting
from newsstand.planning.backbone_files import read_backbone
from newsstand.workload.push1995_trace import check_push_trace, read_push_trace

Lent = Callable[[], AbstractContextManager[None]]
SETTING = PushCacheSetting(threshold=2, pages=2, servers=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("push")
    write_trace(folder / "trace")
    write_network(folder / "network")
    return folder


@pytest.fixture(scope="module")
def trace(spark: SparkSession, folder: Path) -> PushDemand:
    read = read_push_trace(spark, folder / "trace")
    check_push_trace(read)
    return demand_of(read)


def test_a_trace_is_read_in_the_order_of_time(trace: PushDemand) -> None:
    assert trace.time.tolist() == [0, 1, 2, 3, 4, 1800, 1900, 1950]
    assert trace.subnet.tolist() == [1, 1, 1, 1, 1, 1, 1, 0]
    assert trace.page.tolist() == [0, 0, 0, 1, 1, 0, 1, 0]
    assert trace.size.tolist() == [1000, 1000, 1000, 300, 300, 1000, 300, 1000]
    assert trace.subnets.places.longitudes.tolist() == [0, 30]
    assert trace.subnets.nodes.tolist() == [-1, -1]


def test_each_setting_is_compared_with_no_pushing_and_done_once(
    spark: SparkSession, trace: PushDemand, folder: Path
) -> None:
    network = Network(read_backbone(folder / "network"))
    settings = [SETTING, replace(SETTING, client_cache="infinite")]
    first = PushCacheRuns(spark, trace, network, folder / "kept").compared(settings)
    for setting, answer in zip(settings, first, strict=True):
        for described, outcome in (
            (setting, answer.outcome),
            (without_pushing(setting), answer.without),
            (uncached(setting), answer.uncached),
        ):
            internet = internet_of(trace, network.of(1), described.servers, 1)
            assert outcome == simulated(trace, internet, described)
    assert first[0].outcome.traffic == 29_440
    assert first[0].without.traffic == first[1].uncached.traffic == 26_500

    (file,) = (folder / "kept").iterdir()
    rows = json.loads(file.read_text())
    assert len(rows) == 4
    rows[0]["outcome"]["traffic"] = 7
    file.write_text(json.dumps(rows))
    assert PushCacheRuns(spark, trace, network, folder / "kept").compared([SETTING])[0].outcome.traffic == 7


def test_another_trace_or_network_is_kept_apart(spark: SparkSession, trace: PushDemand, tmp_path: Path) -> None:
    later = replace(trace, time=trace.time + 1)
    for one, network in ((trace, Network(line())), (later, Network(line())), (trace, Network(line(5)))):
        PushCacheRuns(spark, one, network, tmp_path).compared([PushCacheSetting(servers=0)])
    assert len([*tmp_path.iterdir()]) == 3


ROW = {"setting": asdict(SETTING), "outcome": asdict(PushOutcome(requests=8, traffic=7))}


def test_what_was_kept_is_read(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    assert read_kept(file, kept_setting) == {}
    file.write_text(json.dumps([ROW]))
    assert read_kept(file, kept_setting) == {SETTING: PushOutcome(requests=8, traffic=7)}


def kept_setting(row: dict[str, Any]) -> PushCacheSetting:
    return PushCacheSetting(**row["setting"])


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\xff",
        json.dumps([ROW]).encode()[:-1],
        b"7",
        b"[7]",
        b"[{}]",
        b"[" * 100_000,
        json.dumps([{**ROW, "setting": {"threshold": -1}}]).encode(),
        json.dumps([{**ROW, "setting": {"colour": 1}}]).encode(),
        json.dumps([{**ROW, "outcome": {}}]).encode(),
        json.dumps([{**ROW, "outcome": {**asdict(PushOutcome()), "traffic": "much"}}]).encode(),
        json.dumps([{**ROW, "outcome": [1, 2]}]).encode(),
    ],
    ids=lambda damaged: damaged[-20:].decode(errors="replace"),
)
def test_a_damaged_file_of_kept_simulations_is_named(tmp_path: Path, damaged: bytes) -> None:
    file = tmp_path / "kept.json"
    file.write_bytes(damaged)
    with pytest.raises(BadInput) as refused:
        read_kept(file, kept_setting)
    assert str(refused.value) == f"{file}: is damaged; remove it, and what it kept is simulated again"


def test_more_push_caches_only_add_to_fewer() -> None:
    trace = demand([(0.0, 0, 0, 0)], [(0, 1, 0.0)])
    few, many = (internet_of(trace, line(), count, seed=3).servers for count in (5, 20))
    assert (len(few), len(many)) == (6, 21)
    assert many.nodes[:6].tolist() == few.nodes.tolist()
    assert many.places.longitudes[:6].tolist() == few.places.longitudes.tolist()


def test_a_node_that_a_trace_tells_is_where_a_subnet_is() -> None:
    trace = demand([(0.0, 0, 0, 0)], [(0, 1, 0.0)], subnets=2)
    told = replace(trace, subnets=replace(trace.subnets, nodes=np.array([3, -1], np.int32)))
    assert internet_of(told, line(), 0, 1).subnets.nodes.tolist() == [3, 1]
    with pytest.raises(BadOption, match="table 'subnets': node 3 is not in the network, whose nodes are 0 … 2"):
        internet_of(told, line(3), 0, 1)


# The command


def test_the_command_answers_with_the_names_agreed(
    folder: Path, lent: Lent, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["push-cache", f"{folder}/trace", "--network", f"{folder}/network", "--threshold", "2", "--pages", "2"]
    with lent():
        assert run([*words, "--servers", "1", "--caching", "hops", "--lookup", "hops", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    expected = {
        "traffic": 29_440,
        "primary_traffic": 5968,
        "server_traffic": 3634.0,
        "primary_requests": answer["origin_answers"] + answer["redirects"] + answer["checks"],
        "active": 1,
        "available": 1,
        "stored_bytes": 1300,
        "requests": 8,
        "hits": 2,
        "stale_hits": 0,
        "redirects": 1,
        "invalid": 0,
        "pushes": 1,
    }
    assert {name: answer[name] for name in expected} == expected
    assert answer["without"]["traffic"] == answer["uncached"]["traffic"] == 26_500
    assert answer["saved"]["traffic"] == 1 - 29_440 / 26_500
    assert answer["without"]["primary_requests"] == 8
    for name in ("server_traffic", "primary_requests"):
        assert answer["saved"][name] == 1 - answer[name] / answer["without"][name]


def test_ranges_are_a_list_a_table_and_a_figure(
    folder: Path, lent: Lent, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["push-cache", f"{folder}/trace", "--threshold", "2", "--servers", "0:2:1", "--caching", "hops,random"]
    keep = ["--nodes", "9", "--keep", f"{folder}/kept-by-command"]
    with lent():
        assert run([*words, *keep, "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)
    asked = [(number, caching) for number in (0, 1, 2) for caching in ("hops", "random")]
    assert [(answer["servers"], answer["caching"]) for answer in answers] == asked
    with lent():
        assert run([*words, *keep, "--figure", f"{folder}/servers.svg"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("threshold 2, pages 10, lookup hops, client cache none")
    assert len(out.splitlines()) == 1 + 1 + 6 + 1
    assert "available push-caches" in (folder / "servers.svg").read_text()

    (file,) = (folder / "kept-by-command").iterdir()
    file.write_text(file.read_text()[:-1])
    with lent():
        assert run([*words, *keep]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"newsstand: {file}: is damaged; remove it")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--threshold", "-1"], "--threshold -1: cannot be negative"),
        (["--pages", "many"], "--pages many: not a whole number, nor a list 5,10,20, nor a range 5:30:5"),
        (["--caching", "hops,near"], "--caching near: choose of hops, miles, random"),
        (["--client-cache", "small"], "--client-cache small: choose of none, infinite"),
        (["--nodes", "0"], "--nodes 0: must be in 1 … 10,000"),
        (["--network", "{folder}/network", "--nodes", "3"], "--nodes: a network that is given with --network has"),
        (["--network", "{folder}/nowhere"], "{folder}/nowhere"),
        (["--keep", "{folder}/trace/pages.csv"], "--keep {folder}/trace/pages.csv: is a file, not a folder"),
        (["--keep", "{folder}/trace/pages.csv/in"], "--keep {folder}/trace/pages.csv/in: cannot be written"),
        (["--figure", "x.svg"], "--figure x.svg: nothing to draw it over"),
        (["--servers", "1:2:1", "--figure", "x.txt"], "--figure x.txt: the name must end in"),
        (["--seed", "1:9000:1", "--pages", "1,2"], "--seed: all options together ask for more than 10,000"),
    ],
)
def test_a_mistake_is_one_line_before_spark_is_started(
    words: list[str],
    told: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("newsstand.spark.open_session", pytest.fail)
    given = [word.format(folder=folder) for word in words]
    assert run(["push-cache", f"{folder}/trace", *given]) == 2
    said = capsys.readouterr().err
    assert told.format(folder=folder) in said
    assert len(said.splitlines()) == 1


def test_a_folder_that_is_no_trace_is_one_line(
    tmp_path: Path, lent: Lent, capsys: pytest.CaptureFixture[str]
) -> None:
    with lent():
        assert run(["push-cache", f"{tmp_path}/none", "--json"]) == 2
    assert capsys.readouterr().err.splitlines() == [f"newsstand: {tmp_path}/none: no such trace folder"]
