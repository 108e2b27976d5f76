"""Simulations of push-caching as tasks, and `newsstand push-cache`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from support.lab.push_traces import demand, line, write_network, write_trace

from newsstand.cli.main import run
from newsstand.errors import BadInput, BadOption
from newsstand.geo.backbone_sources import read_backbone
from newsstand.lab.push_caching.demand import PushDemand, demand_of
from newsstand.lab.push_caching.internet import internet_of
from newsstand.lab.push_caching.runs import BackboneSource, PushCacheRun, PushCacheRuns, uncached, without_pushing
from newsstand.lab.push_caching.simulator import PushCacheSetting, PushOutcome, simulate_pushing
from newsstand.lab.reporting.run_cache import RunCache
from newsstand.workload.push1995.trace import check_push_trace, read_push_trace

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


def test_demand_is_read_in_order_of_time(trace: PushDemand) -> None:
    assert trace.time.tolist() == [0, 1, 2, 3, 4, 1800, 1900, 1950]
    assert trace.subnet.tolist() == [1, 1, 1, 1, 1, 1, 1, 0]
    assert trace.page.tolist() == [0, 0, 0, 1, 1, 0, 1, 0]
    assert trace.size.tolist() == [1000, 1000, 1000, 300, 300, 1000, 300, 1000]
    assert trace.subnets.places.longitudes.tolist() == [0, 30]
    assert trace.subnets.nodes.tolist() == [-1, -1]


def test_runs_compare_settings_and_simulate_once(spark: SparkSession, trace: PushDemand, folder: Path) -> None:
    network = BackboneSource(read_backbone(folder / "network"))
    settings = [SETTING, replace(SETTING, client_cache="infinite")]
    first = PushCacheRuns(trace, network, folder / "kept", spark=spark).compared(settings)
    for setting, answer in zip(settings, first, strict=True):
        for described, outcome in (
            (setting, answer.outcome),
            (without_pushing(setting), answer.without),
            (uncached(setting), answer.uncached),
        ):
            internet = internet_of(trace, network.of(1), described.servers, 1)
            assert outcome == simulate_pushing(trace, internet, described)
    assert first[0].outcome.traffic == 29_440
    assert first[0].without.traffic == first[1].uncached.traffic == 26_500

    (file,) = (folder / "kept").iterdir()
    rows = json.loads(file.read_text())
    assert len(rows) == 4
    rows[0]["outcome"]["traffic"] = 7
    file.write_text(json.dumps(rows))
    assert PushCacheRuns(trace, network, folder / "kept", spark=spark).compared([SETTING])[0].outcome.traffic == 7


def test_runs_of_other_traces_have_other_files(spark: SparkSession, trace: PushDemand, tmp_path: Path) -> None:
    later = replace(trace, time=trace.time + 1)
    for one, network in (
        (trace, BackboneSource(line())),
        (later, BackboneSource(line())),
        (trace, BackboneSource(line(5))),
    ):
        PushCacheRuns(one, network, tmp_path, spark=spark).compared([PushCacheSetting(servers=0)])
    assert len([*tmp_path.iterdir()]) == 3


ROW = {"task": asdict(SETTING), "outcome": asdict(PushOutcome(requests=8, traffic=7))}


def test_runs_are_read_from_file(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    assert RunCache(file, PushCacheRun).missing([SETTING]) == [SETTING]
    file.write_text(json.dumps([ROW]))
    assert RunCache(file, PushCacheRun)[SETTING].outcome == PushOutcome(requests=8, traffic=7)


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
        json.dumps([{**ROW, "task": {"threshold": -1}}]).encode(),
        json.dumps([{**ROW, "task": {"colour": 1}}]).encode(),
        json.dumps([{**ROW, "outcome": {}}]).encode(),
        json.dumps([{**ROW, "outcome": {**asdict(PushOutcome()), "traffic": "much"}}]).encode(),
        json.dumps([{**ROW, "outcome": [1, 2]}]).encode(),
    ],
    ids=lambda damaged: damaged[-20:].decode(errors="replace"),
)
def test_runs_name_damaged_file(tmp_path: Path, damaged: bytes) -> None:
    file = tmp_path / "kept.json"
    file.write_bytes(damaged)
    with pytest.raises(BadInput) as refused:
        RunCache(file, PushCacheRun)
    assert str(refused.value) == f"{file}: is damaged; remove it to compute its runs again"


def test_internet_adds_push_caches() -> None:
    trace = demand([(0.0, 0, 0, 0)], [(0, 1, 0.0)])
    few, many = (internet_of(trace, line(), count, seed=3).servers for count in (5, 20))
    assert (len(few), len(many)) == (6, 21)
    assert many.nodes[:6].tolist() == few.nodes.tolist()
    assert many.places.longitudes[:6].tolist() == few.places.longitudes.tolist()


def test_internet_uses_nodes_of_trace() -> None:
    trace = demand([(0.0, 0, 0, 0)], [(0, 1, 0.0)], subnets=2)
    message = replace(trace, subnets=replace(trace.subnets, nodes=np.array([3, -1], np.int32)))
    assert internet_of(message, line(), 0, 1).subnets.nodes.tolist() == [3, 1]
    with pytest.raises(BadOption, match="table 'subnets': node 3 is not in the network, whose nodes are 0 … 2"):
        internet_of(message, line(3), 0, 1)


# The command


def test_command_prints_fields_of_contract(folder: Path, lent: Lent, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_command_takes_ranges_for_list_table_and_figure(
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
    ("words", "message"),
    [
        (["--threshold", "-1"], "--threshold -1: must not be negative"),
        (["--pages", "many"], "--pages many: must be a whole number, a list 5,10,20 or a range 5:30:5"),
        (["--caching", "hops,near"], "--caching near: must be one of hops, miles, random"),
        (["--client-cache", "small"], "--client-cache small: must be one of none, infinite"),
        (["--nodes", "0"], "--nodes 0: must be from 1 to 10,000"),
        (
            ["--network", "{folder}/network", "--nodes", "3"],
            "--nodes: remove it; the network of --network has its own",
        ),
        (["--network", "{folder}/nowhere"], "{folder}/nowhere"),
        (["--keep", "{folder}/trace/pages.csv"], "--keep {folder}/trace/pages.csv: is a file, not a folder"),
        (["--keep", "{folder}/trace/pages.csv/in"], "--keep {folder}/trace/pages.csv/in: cannot be written"),
        (["--figure", "x.svg"], "--figure x.svg: needs a number with a range, such as --servers 5:40:5"),
        (["--servers", "1:2:1", "--figure", "x.txt"], "--figure x.txt: the name must end in"),
        (["--seed", "1:9000:1", "--pages", "1,2"], "--seed: all options together ask for more than 10,000"),
    ],
)
def test_command_reports_mistake_before_spark_starts(
    words: list[str],
    message: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("newsstand.spark.open_session", pytest.fail)
    given = [word.format(folder=folder) for word in words]
    assert run(["push-cache", f"{folder}/trace", *given]) == 2
    said = capsys.readouterr().err
    assert message.format(folder=folder) in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("engine", ["auto", "local", "spark"])
def test_command_rejects_folder_without_trace(
    tmp_path: Path, lent: Lent, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    with lent():
        assert run(["push-cache", f"{tmp_path}/none", "--json", "--engine", engine]) == 2
    assert capsys.readouterr().err.splitlines() == [f"newsstand: {tmp_path}/none: no such trace folder"]


# Engines

WORDS = "--threshold 1,2 --pages 2 --servers 0:2:1 --caching hops,miles,random --client-cache none,infinite --json"


def test_engines_agree(folder: Path, lent: Lent, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["push-cache", f"{folder}/trace", "--nodes", "9", *WORDS.split()]
    with lent():
        assert run([*words, "--engine", "spark"]) == 0
    on_spark = capsys.readouterr().out
    assert run([*words, "--engine", "local"]) == 0
    assert capsys.readouterr().out == on_spark
    assert len(json.loads(on_spark)) == 36


def test_engines_share_stored_runs(folder: Path, lent: Lent, tmp_path: Path) -> None:
    words = ["push-cache", f"{folder}/trace", "--nodes", "9", "--keep", str(tmp_path), "--json"]
    with lent():
        assert run([*words, "--servers", "1", "--engine", "spark"]) == 0
    assert run([*words, "--servers", "2", "--engine", "local"]) == 0
    (file,) = tmp_path.iterdir()
    assert [row["task"]["servers"] for row in json.loads(file.read_text())] == [1, 0, 2]


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_command_names_node_outside_of_network(
    folder: Path, lent: Lent, tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    trace = write_trace(tmp_path / "trace")
    table = "subnet,name,latitude,longitude,weight,node\n0,near,0,0,1,\n1,far,0,30,1,9\n"
    (trace / "subnets.csv").write_text(table)
    with lent():
        assert run(["push-cache", str(trace), "--network", f"{folder}/network", "--engine", engine]) == 2
    expected = "newsstand: table 'subnets': node 9 is not in the network, whose nodes are 0 … 3"
    assert capsys.readouterr().err.splitlines() == [expected]


def test_processes_give_results_of_one(trace: PushDemand, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [replace(SETTING, seed=seed) for seed in range(4)]
    network = BackboneSource(read_backbone(folder / "network"))
    expected = PushCacheRuns(trace, network).compared(settings)
    monkeypatch.setattr("newsstand.lab.push_caching.runs.WORTH_PROCESSES", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    steps: list[int] = []
    found = PushCacheRuns(trace, network).compared(
        settings, progress=lambda total: lambda piece: steps.append(total)
    )
    assert found == expected
    assert steps == [8] * 8


@pytest.mark.parametrize("worth", [0, 10**9], ids=["processes", "one process"])
def test_local_engine_loads_no_spark(folder: Path, worth: int) -> None:
    program = (
        "import sys; from newsstand.cli.main import run\n"
        f"from newsstand.lab.push_caching import runs; runs.WORTH_PROCESSES = {worth}\n"
        f"code = run(['push-cache', {f'{folder}/trace'!r}, '--seed', '1,2', '--json'])\n"
        "assert code == 0 and not {'pyspark', 'py4j'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 2
