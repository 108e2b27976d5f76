"""`newsstand channel`: trials on recorded publications or a file, explanations with and without a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from support.cluster.standin import StandIn, serving

from newsstand.auth.api_tokens import admin_token, new_token
from newsstand.cli.main import run
from newsstand.cluster.app_folder import read_app
from newsstand.cluster.log.files.log import FileLog
from newsstand.cluster.results.database_sqlite import SqliteResultDatabase
from newsstand.cluster.results.model import SuspendedStreamInfo
from newsstand.cluster.results.stores import ResultStores
from newsstand.cluster.service import RunningExecutionInfo
from newsstand.model import Broker

APP = """
[datasets.reports]
fields = { id = "string", kind = "string", lat = "double", lon = "double", severity = "integer" }

[datasets.shelters]
key = "name"
fields = { name = "string", lat = "double", lon = "double" }

[channels.of_kind]
parameters = { kind = "string" }
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"

[channels.severe]
parameters = { least = "integer", test = "boolean" }
query = "SELECT r.id FROM reports r WHERE r.severity >= :least AND (:test OR r.kind <> 'test')"

[channels.all]
query = "SELECT r.id FROM reports r"

[channels.near]
period = "1s"
parameters = { lat = "double", lon = "double" }
query = '''
SELECT r.id, s.name FROM reports r JOIN shelters s ON distance_km(r.lat, r.lon, s.lat, s.lon) < 3
WHERE distance_km(r.lat, r.lon, :lat, :lon) < 2
'''
"""

REPORTS = [
    {"id": "e1", "kind": "flood", "lat": 1.0, "lon": 1.0, "severity": 1},
    {"id": "e2", "kind": "fire", "lat": 1.0, "lon": 1.0, "severity": 2},
    {"id": "e3", "kind": "flood", "lat": 1.0, "lon": 9.0, "severity": 3},
]
SHELTERS = [
    {"name": "school", "lat": 50.0, "lon": 1.0},
    {"name": "gym", "lat": 1.0, "lon": 1.0},
    {"name": "school", "lat": 1.0, "lon": 9.0},
]


def lines(records: list[dict[str, object]]) -> list[bytes]:
    return [json.dumps(record).encode() for record in records]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An app with a data folder into which another process, this one, writes."""
    folder = tmp_path_factory.mktemp("channel")
    (folder / "app").mkdir()
    (folder / "empty").mkdir()
    for app in ("app", "empty"):
        (folder / app / "newsstand.toml").write_text(APP)
    (folder / "good.ndjson").write_text("\n".join(json.dumps({**one, "id": f"f{one['id']}"}) for one in REPORTS))
    (folder / "mixed.ndjson").write_text(json.dumps(REPORTS[0]) + '\n\n{"id": 1}\nnonsense\n')
    (folder / "rejected.json").write_text('[{"id": 1}, {}]')
    (folder / "none.ndjson").write_text("\n")
    (folder / "cut.json").write_text('[{"id": ')
    data = read_app(folder / "app").data
    log = FileLog(data / "log")
    log.append("reports", lines(REPORTS), 1000)
    log.append("shelters", lines(SHELTERS), 1000)
    results = ResultStores(SqliteResultDatabase(data / "results.sqlite"))
    results.results.add_channel("of_kind", 0)
    for broker in ("north", "south"):
        results.outbox.put_broker(Broker(broker, "http://127.0.0.1:9/", "secret"))
        results.subscriptions.subscribe(broker, {"of_kind": {("flood",): 1, ("snow",): 1}})
    yield folder
    results.close()
    log.close()


Outcomes = dict[str, dict[str, object]]

COMMANDS = {
    "named": ["try", "app", "severe", "--value", "least=2", "--value", "test=false"],
    "sets": ["try", "app", "near", "--values", '{"lat": 1, "lon": 1.0}', "--values", "[1, 9]", "--json"],
    "part": ["try", "app", "all", "--from", "2", "--until", "2", "--json"],
    "file": ["try", "app", "near", "--value", "lat=1", "--value", "lon=9", "--file", "good.ndjson", "--json"],
    "mixed": ["try", "app", "of_kind", "--value", "kind=flood", "--file", "mixed.ndjson"],
    "nothing": ["try", "empty", "of_kind", "--value", "kind=flood", "--file", "good.ndjson", "--json"],
    "explained": ["explain", "app", "of_kind", "--json"],
    "warned": ["explain", "app", "severe"],
}


@pytest.fixture(scope="module")
def reply(folder: Path, lent: Callable[[], AbstractContextManager[None]]) -> Outcomes:
    """What each command prints."""
    reply: Outcomes = {}
    for name, words in COMMANDS.items():
        with lent(), chdir(folder), redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
            code = run(["channel", *words])
        reply[name] = {"code": code, "out": out.getvalue(), "err": err.getvalue()}
    assert {name: one["code"] for name, one in reply.items() if one["code"]} == {}, reply
    return reply


def facts(reply: Outcomes, name: str) -> dict[str, object]:
    known = json.loads(str(reply[name]["out"]))
    assert isinstance(known, dict)
    return known


def test_trial_counts_results_of_each_set_of_values(reply: Outcomes) -> None:
    known = facts(reply, "sets")
    assert known["by_values"] == [{"values": [1.0, 1.0], "results": 2}, {"values": [1.0, 9.0], "results": 1}]
    assert known["publications"] == 3
    assert known["output"] == {"id": "string", "name": "string"}
    assert known["sample"] == [
        {"values": [1.0, 1.0], "publication": 1, "payload": {"id": "e1", "name": "gym"}},
        {"values": [1.0, 1.0], "publication": 2, "payload": {"id": "e2", "name": "gym"}},
        {"values": [1.0, 9.0], "publication": 3, "payload": {"id": "e3", "name": "school"}},
    ], "the shelters are where they were last said to be"


def test_trial_is_shown_as_table_with_sample(reply: Outcomes) -> None:
    printed = str(reply["named"]["out"]).splitlines()
    assert [line.split() for line in printed[:2]] == [["least", "test", "results"], ["2", "False", "2"]]
    assert '2, False from 3: {"id": "e3"}' in printed
    assert printed[-1].startswith("severe: 2 results of 3 publications in ")
    assert reply["named"]["err"] == ""


def test_trial_of_part_of_log_without_parameters_needs_no_values(reply: Outcomes) -> None:
    known = facts(reply, "part")
    assert (known["publications"], known["results"]) == (1, 1)
    assert known["by_values"] == [{"values": [], "results": 1}]


def test_trial_reads_new_records_from_file_and_stored_ones_from_data_folder(reply: Outcomes) -> None:
    assert facts(reply, "file")["sample"] == [
        {"values": [1.0, 9.0], "publication": 3, "payload": {"id": "fe3", "name": "school"}}
    ]
    assert facts(reply, "nothing")["results"] == 2, "no data folder is needed"


def test_trial_creates_no_data_folder(reply: Outcomes, folder: Path) -> None:
    assert not (folder / "empty" / "data").exists()
    assert sorted(path.name for path in (folder / "app" / "data").iterdir() if "sqlite-" not in path.name) == [
        "log",
        "results.sqlite",
    ]


def test_rejected_records_of_file_are_reported_by_lines(reply: Outcomes) -> None:
    rejected = [line.split(" ")[0] for line in str(reply["mixed"]["err"]).splitlines()]
    assert rejected == ["mixed.ndjson:3:", "mixed.ndjson:4:"]
    assert "of_kind: 1 results of 1 publications" in str(reply["mixed"]["out"])


def test_channel_is_explained_from_data_folder(reply: Outcomes) -> None:
    known = facts(reply, "explained")
    assert (known["subscriptions"], known["streams"]) == (4, 2)
    assert known["runs_with"] == ["all", "severe"]
    recent = known["recent"]
    assert isinstance(recent, dict)
    assert (recent["publications"], recent["results"], recent["streams"]) == (3, 2, 1)
    assert recent["bytes"] == len('{"id":"e1"}{"id":"e3"}')
    plan = known["plan"]
    assert isinstance(plan, dict)
    assert [(join["keys"], join["values"]) for join in plan["joins"]] == [(["kind"], True)]
    assert plan["warnings"] == []


def test_warning_comes_first_even_without_subscribers(reply: Outcomes) -> None:
    printed = str(reply["warned"]["out"]).splitlines()
    assert printed[0].startswith("WARNING: no equality or distance ties a parameter to a dataset")
    assert printed[1] == "severe: 0 subscriptions share 0 streams"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("try app nowhere", "no channel 'nowhere'; there are: all, near, of_kind, severe"),
        ("try app of_kind", "channel 'of_kind': parameter 'kind' is missing"),
        ("try app of_kind --value sort=x", "channel 'of_kind': no parameter 'sort'; it has: kind"),
        ("try app of_kind --value kind", "--value kind: must have the form name=value"),
        ("try app of_kind --value kind=a --value kind=b", "--value kind=b: 'kind' is given twice; use --values"),
        ("try app severe --value least=x", "channel 'severe': parameter 'test' is missing"),
        (
            "try app severe --value least=x --value test=true",
            "channel 'severe', parameter 'least': 'x' is not an i",
        ),
        (
            "try app severe --value least=1 --value test=1",
            "channel 'severe', parameter 'test': '1' is not a boolean",
        ),
        ("try app near --value lat=nan --value lon=1", "channel 'near', parameter 'lat': nan is not a double"),
        ("try app of_kind --values {", "--values {: is not JSON"),
        ("try app of_kind --values 7", "--values 7: give an object"),
        ("try app of_kind --values [[]]", "channel 'of_kind', parameter 'kind': [] is not a string"),
        ("try app of_kind --values []", "channel 'of_kind': expected 1 value"),
        ("try app all --from 3 --until 2", "--until 2: must not be before --from 3"),
        ("try app all --file absent.ndjson", "absent.ndjson: no such file"),
        ("try app all --file cut.json", "cut.json: "),
        ("try app all --file none.ndjson", "none.ndjson: has no records"),
        (
            "try app all --file rejected.json",
            "rejected.json: all 2 records were rejected; rejected.json:1: field 'id'",
        ),
        ("try empty all", "data folder empty/data: has no log, no cluster ever ran there; name a file of records"),
        ("try absent all", "absent: no such folder"),
        ("explain app nowhere", "no channel 'nowhere'; there are: all, near, of_kind, severe"),
    ],
)
def test_mistake_is_one_line_before_spark_starts(
    words: str, said: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert run(["channel", *words.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"newsstand: {said}")


@pytest.mark.parametrize("command", ["explain app all", "suspended app all", "running app"])
def test_cluster_that_does_not_answer_is_reported(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    Path("token").write_text("nst_x")
    address = ["--url", "http://127.0.0.1:1", "--token-file", "token"]
    assert run(["channel", *command.split(), *address]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("newsstand: http://127.0.0.1:1: does not answer")


def test_log_without_publications_of_dataset_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "newsstand.toml").write_text(APP)
    FileLog(tmp_path / "elsewhere" / "log").close()
    words = ["channel", "try", str(tmp_path), "all", "--data", str(tmp_path / "elsewhere")]
    assert run(words) == 2
    assert f"{tmp_path}/elsewhere: nothing was published to 'reports' yet" in capsys.readouterr().err


def test_address_of_killed_cluster_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NEWSSTAND_TOKEN", raising=False)
    (tmp_path / "newsstand.toml").write_text(APP)
    admin_token(tmp_path / "data", bytes(32))
    (tmp_path / "data" / "address").write_text("http://127.0.0.1:1\n")
    assert run(["channel", "explain", str(tmp_path), "nowhere"]) == 2
    note, error = capsys.readouterr().err.splitlines()
    assert note == "note: http://127.0.0.1:1 does not answer; explained from the data folder"
    assert error.startswith("newsstand: no channel 'nowhere'")


def test_running_cluster_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NEWSSTAND_TOKEN", raising=False)
    cluster = StandIn(tmp_path)
    known: dict[str, object] = {
        "channel": "by_kind",
        "subscriptions": 1200,
        "streams": 7,
        "runs_with": ["other"],
        "last_seconds": 0.25,
        "plan": {
            "joins": [{"kind": "BroadcastHashJoin", "keys": ["__c1", "kind"], "built": "left", "values": True}],
            "warnings": ["dear"],
        },
        "recent": {"publications": 10, "results": 3, "streams": 2, "seconds": 0.5},
    }
    monkeypatch.setattr(
        StandIn, "explain", lambda self, name: {**known, "channel": self.catalog.channel(name).name}
    )
    token, _ = admin_token(cluster.app.data, bytes(32))
    with serving(cluster, {"admin": token}) as url:
        (cluster.app.data / "address").write_text(url + "\n")
        assert run(["channel", "explain", str(tmp_path), "by_kind", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == known
        assert run(["channel", "explain", str(tmp_path), "by_kind"]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "WARNING: dear",
            "by_kind: 1,200 subscriptions share 7 streams",
            "reads new publications together with: other",
            "join by place, kind with the subscriptions (BroadcastHashJoin)",
            "of the last 10 publications: 3 results in 2 streams, computed in 0.50 s",
            "the last execution took 0.25 s",
        ]
        known["recent"] = {"publications": 10, "error": "DIVIDE_BY_ZERO"}
        assert run(["channel", "explain", str(tmp_path), "by_kind"]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "fails on the last 10 publications: DIVIDE_BY_ZERO"
        assert run(["channel", "explain", str(tmp_path), "nowhere"]) == 2
        assert "no channel 'nowhere'" in capsys.readouterr().err


def test_suspensions_of_all_pages_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NEWSSTAND_TOKEN", raising=False)
    cluster = StandIn(tmp_path)
    known = [
        SuspendedStreamInfo(number, (f"v{number}",), "BadCast: no number", 70, 5, 2) for number in range(1, 2002)
    ]
    monkeypatch.setattr(StandIn, "suspensions", lambda self, name: known if self.catalog.channel(name) else [])
    token, _ = admin_token(cluster.app.data, bytes(32))
    with serving(cluster, {"admin": token}) as url:
        (cluster.app.data / "address").write_text(url + "\n")
        assert run(["channel", "suspended", str(tmp_path), "by_kind", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"suspensions": json.loads(msgspec.json.encode(known))}
        assert run(["channel", "suspended", str(tmp_path), "by_kind"]) == 0
        printed = capsys.readouterr().out.splitlines()
        assert (len(printed), printed[-1]) == (2002, "by_kind: 2001 suspended")
        assert printed[2000] == '["v2001"], 2 subscriptions: BadCast: no number'


def test_running_executions_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NEWSSTAND_TOKEN", raising=False)
    cluster = StandIn(tmp_path)
    token, _ = admin_token(cluster.app.data, bytes(32))
    with serving(cluster, {"admin": token}) as url:
        (cluster.app.data / "address").write_text(url + "\n")
        assert run(["channel", "running", str(tmp_path)]) == 0
        assert capsys.readouterr().out == "no execution is running\n"
        cluster.running = [
            RunningExecutionInfo("of_kind", "reports", "execution", 41, 1041, 1000, 31.257, True),
            RunningExecutionInfo("near", "reports", "warm-up", None, None, None, 0.5, False),
        ]
        assert run(["channel", "running", str(tmp_path), "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)["executions"]
        assert [(one["channel"], one["seconds"]) for one in printed] == [("near", 0.5), ("of_kind", 31.257)]
        assert run(["channel", "running", str(tmp_path)]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "channel  dataset  phase      after  through  publications  seconds",
            "near     reports  warm-up                                      0.5",
            "of_kind  reports  execution     41     1041          1000     31.3  slow",
        ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nowhere", "no channel 'nowhere'; there are: by_kind"),
        ("nowhere --resume", "no channel 'nowhere'; there are: by_kind"),
        ("nowhere --json", "no channel 'nowhere'; there are: by_kind"),
        ("by_kind? --resume", "no channel 'by_kind?'; there are: by_kind"),
        ("by_kind# --resume", "no channel 'by_kind#'; there are: by_kind"),
        ("by_kind --resume --token-file reader", "the token 'reader' lacks the scope admin"),
        ("by_kind --token-file none", "the token is not known"),
    ],
)
def test_suspensions_error_is_one_line(
    words: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("NEWSSTAND_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)
    cluster = StandIn(tmp_path)
    admin, _ = admin_token(cluster.app.data, bytes(32))
    text, reader = new_token("reader", ["read"], bytes(31) + b"r")
    Path("reader").write_text(text)
    Path("none").write_text(new_token("none", ["admin"], bytes(31) + b"n")[0])
    with serving(cluster, {"admin": admin, "reader": reader}) as url:
        (cluster.app.data / "address").write_text(url + "\n")
        assert run(["channel", "suspended", ".", *words.split()]) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith(f"newsstand: {said}")
    assert printed.out == ""
    assert [one.name for one in cluster.catalog.channels().values()] == ["by_kind"], (
        "nothing else happens to the channel"
    )
