"""The command line: help, spellings of values, exact output, mistakes in one line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from pyspark.sql import SparkSession
from support.environment import without_settings

from newsstand.caching import POLICIES
from newsstand.cli.main import app, run
from newsstand.cli.several_values import MANY, ONE, spread
from newsstand.errors import BadOption
from newsstand.workload.chen2003.generator import generate
from newsstand.workload.chen2003.publishing import News

ROOT = Path(__file__).parents[2]
VECTOR = ROOT / "tests" / "vectors" / "chen2003" / "d-large"
EXAMPLE = ROOT / "examples" / "my_policy.py"
REFERENCE = ROOT / "docs" / "reference" / "commands.md"


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its full name."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for word, below in command.commands.items():
        yield from commands(f"{name} {word}", below)


COMMANDS = dict(commands("newsstand", typer.main.get_command(app)))


# Help and reference


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_all_have_help_with_example(name: str) -> None:
    said = COMMANDS[name].help
    assert re.search(rf"^Example: {name}\b", said, re.MULTILINE)
    assert all(getattr(parameter, "help", None) for parameter in COMMANDS[name].params)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_printed_and_exits_with_0(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*name.split()[1:], "--help"]) == 0
    printed = capsys.readouterr()
    assert f"Usage: {name}" in printed.out
    assert "Example: " in printed.out
    assert printed.err == ""


@pytest.mark.skipif(not REFERENCE.exists(), reason="docs/reference/commands.md is not written yet")
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_and_options_are_all_in_reference(name: str) -> None:
    _, _, rest = REFERENCE.read_text().partition(f"\n## `{name}`\n")
    section = rest.partition("\n## ")[0]
    assert section
    for parameter in COMMANDS[name].params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", section), option


WITH_POLICY_FILES = [
    name for name, command in COMMANDS.items() if any("--policy-file" in one.opts for one in command.params)
]


def test_commands_that_run_policy_files_are_known() -> None:
    assert WITH_POLICY_FILES == ["newsstand simulate", "newsstand policies"]


@pytest.mark.parametrize("name", WITH_POLICY_FILES)
def test_help_and_reference_warn_that_policy_file_is_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    warning = "Its code runs here and on the workers, with your rights: give only files that you trust."
    assert run([*name.split()[1:], "--help"]) == 0
    _, _, message = capsys.readouterr().out.partition("--policy-file")
    assert warning in " ".join(re.sub("[│|]", " ", message).split())
    _, _, section = REFERENCE.read_text().partition(f"\n## `{name}`\n")
    (row,) = [line for line in section.partition("\n## ")[0].splitlines() if "`--policy-file FILE`" in line]
    assert warning in row


def test_version_is_option_without_opposite(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "--version Print the version and exit." in printed
    assert "--no-version" not in printed


def test_help_is_shown_without_command(capsys: pytest.CaptureFixture[str]) -> None:
    run([])
    assert "simulate" in "".join(capsys.readouterr())


# Many values


@pytest.mark.parametrize(
    "spelling",
    [
        "simulate nowhere --policy lru sub --capacity 0.1 0.2 --json",
        "simulate nowhere --policy lru --policy sub --capacity 0.1 --capacity 0.2 --json",
        "simulate nowhere --policy lru,sub --capacity 0.1,0.2 --json",
        "simulate nowhere --policy=lru,sub --capacity=0.1 0.2 --json",
        "simulate nowhere --policy lru, sub --capacity 0.1 --capacity=0.2 --json",
    ],
)
def test_values_may_be_spelled_in_three_ways(spelling: str) -> None:
    plain = "simulate nowhere --policy lru --policy sub --capacity 0.1 --capacity 0.2 --json"
    assert spread(spelling.split()) == plain.split()


@pytest.mark.parametrize(
    "spelling",
    [
        "simulate HERE --policy lru sub --beta 1 2",
        "simulate --policy lru sub HERE --beta 1 2",
        "simulate --policy lru sub --beta 1 2 HERE",
        "simulate --json --policy lru sub --beta 1 2 HERE",
        "simulate --master local[2] --policy lru sub --figure f.svg --beta 1 2 HERE",
    ],
)
def test_trace_may_precede_or_follow_options(spelling: str, tmp_path: Path) -> None:
    words = spread([word.replace("HERE", str(tmp_path)) for word in spelling.split()])
    options = [words[i : i + 2] for i, word in enumerate(words) if word in ("--policy", "--beta")]
    assert options == [["--policy", "lru"], ["--policy", "sub"], ["--beta", "1"], ["--beta", "2"]]
    assert str(tmp_path) in words
    assert words[words.index(str(tmp_path)) - 1] not in MANY


def test_folder_named_like_policy_is_not_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("trace").mkdir()
    plain = ["simulate", "--policy", "sub", "trace"]
    assert spread(plain) == plain
    after = ["simulate", "trace", "--policy", "lru", "sub"]
    assert spread(after) == ["simulate", "trace", "--policy", "lru", "--policy", "sub"]


@pytest.mark.parametrize(
    "spelling",
    ["--policy", "--policy --json", "--policy=", "--policy ,", "--capacity= 1", "--policy lru,,", "--policy ,lru"],
)
def test_option_without_value_is_named(spelling: str) -> None:
    option = spelling.split(maxsplit=1)[0].rstrip("=")
    with pytest.raises(BadOption, match=f"^{option}: missing value; give at least one$"):
        spread(["simulate", "trace", *spelling.split()])


def test_policy_files_may_have_commas_in_names() -> None:
    assert spread(["policies", "--policy-file", "a,b.py"]) == ["policies", "--policy-file", "a,b.py"]


def test_methods_are_many_where_command_takes_many() -> None:
    asked = spread(["survive", "--slots", "5", "--method", "exact", "reduced,simulate"])
    assert asked == [
        "survive",
        "--slots",
        "5",
        *("--method", "exact", "--method", "reduced", "--method", "simulate"),
    ]
    assert spread(["plan", "--method", "greedy", "net.json"]) == ["plan", "--method", "greedy", "net.json"]


def test_arguments_of_other_commands_are_unchanged() -> None:
    plain = ["workload", "chen2003", "--out", "x", "--sq", "0.5", "--force"]
    assert spread(plain) == plain


def test_options_with_values_are_known() -> None:
    params = [*COMMANDS["newsstand simulate"].params[1:], *COMMANDS["newsstand replay"].params[1:]]
    valued = {option for parameter in params if not parameter.is_flag for option in parameter.opts}
    assert valued == {*MANY, *ONE}


# Mistakes that show before Spark starts


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("simulate", "Missing argument 'trace'."),
        ("simulate trace --polcy lru", "No such option: --polcy"),
        ("simulate trace --policy", "--policy: missing value; give at least one"),
        ("simulate trace --policy lruu", "unknown policy 'lruu'; known: gdstar"),
        ("simulate trace --capacity 0", "--capacity 0: must be above 0 and at most 1"),
        ("simulate trace --capacity -1", "--capacity -1: must be above 0 and at most 1"),
        ("simulate trace --capacity 0.1 1.5", "--capacity 1.5: must be above 0 and at most 1"),
        ("simulate trace --capacity abc", "--capacity abc: must be a number"),
        ("simulate trace --beta 0", "--beta 0: must be a number above 0"),
        ("simulate trace --beta abc", "Invalid value for '--beta': "),
        ("simulate trace --policy lru --figure f.gif", "--figure f.gif: the name must end in .svg, .png or .pdf"),
        ("simulate trace --policy lru --figure no/f.svg", "--figure no/f.svg: no folder no"),
        ("simulate trace --policy lru --policy-file no.py", "no.py: cannot read the policy file"),
        ("simulate trace --policy lru --conf nonsense", "--conf: 'nonsense' must have the form"),
        ("simulate trace --policy lru --master gopher://x", "master 'gopher://x' is none of local[*], "),
        ("simulate trace --policy lru --master spark://127.0.0.1:1", "cannot start Spark on master 'spark://127"),
        ("workload chen2003", "Missing option '--out'."),
        ("workload chen2003 --out a-file", "--out a-file: is a file, not a folder; choose another"),
        ("workload chen2003 --out a-file --force", "--out a-file: is a file, not a folder; choose another"),
        (
            "workload chen2003 --out mine",
            "--out mine: exists already; choose another folder, or set --force",
        ),
        (
            "workload chen2003 --out mine --force",
            "--out mine: is not a trace, and --force replaces nothing else",
        ),
        ("workload chen2003 --out new --requests 0", "--requests 0: must be at least 1"),
        ("workload chen2003 --out new --sq 2", "--sq 2: must be within (0, 1]"),
        ("workload chen2003 --out new --trace gazette", "Invalid value for '--trace': "),
        ("workload import trace --out mine", "--out mine: exists already"),
        ("compare --out a-file", "--out a-file: is a file, not a folder"),
        ("demo --data a-file --duration 1", "--data a-file: is a file, not a folder"),
        ("compare --out a-file/below", "--out a-file/below: cannot be written (Not a directory)"),
        ("reproduce chen2003 --out a-file", "--out a-file: is a file, not a folder"),
        ("reproduce chen2003 --out new --requests 0", "--requests 0: must be at least 1"),
        ("publish", "Missing argument 'APP'."),
        ("publish nowhere reports nothing.ndjson", "nothing.ndjson: no such file"),
        ("publish nowhere reports a-file", "nowhere: no such folder"),
        ("publish nowhere reports a-file --patience -1", "Invalid value for '--patience': "),
        ("publish mine reports - --follow", "--follow: standard input cannot be followed; name a file"),
        ("check mine", "mine: has no newsstand.toml"),
        ("cluster nowhere", "nowhere: no such folder"),
        ("cluster mine --port 70000", "Invalid value for '--port': "),
        ("channel list mine", "mine: has no newsstand.toml"),
        ("token cluster --name gate --scope write", "scope 'write' is none of admin, read, "),
        ("brokers", "No such command 'brokers'."),
    ],
)
def test_mistake_is_one_line_and_exit_code_2(
    command: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a-file").touch()
    (tmp_path / "mine" / "work").mkdir(parents=True)
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "requests.csv").touch()
    assert run(command.split()) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith(f"newsstand: {message}")
    assert printed.out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-file", "mine", "trace"]


@pytest.mark.parametrize("command", ["policies", "policies --json", f"policies --policy-file {EXAMPLE} --json"])
def test_policies_are_listed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = dict(POLICIES)
    try:
        assert run(command.split()) == 0
    finally:
        POLICIES.restore(before)
        for name in [name for name in sys.modules if name.startswith("newsstand_policy_")]:
            del sys.modules[name]
    printed = capsys.readouterr().out
    if "--json" in command:
        listed = [policy["name"] for policy in json.loads(printed)]
    else:
        listed = [line.split()[0] for line in printed.splitlines()]
    assert listed == [*before, *(["head-start"] if "--policy-file" in command else [])]


# Whole commands, in one process that is not this one


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        """What standard output holds, and nothing else."""

        def reject(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        assert self.code == 0, self.err
        return json.loads(self.out, parse_constant=reject)


WHOLE = {
    "words": "simulate trace --policy lru sub --capacity 0.05 0.1 --json",
    "table": "simulate trace --policy lru sub --capacity 0.05 0.5 --figure figure.svg",
    "all": "simulate trace --policy all --capacity 0.05 --hourly --json",
    "own": f"simulate trace --policy-file {EXAMPLE} --policy head-start lfu-da --capacity 0.05 --per-proxy --json",
    "generate": "workload chen2003 --out made --requests 300 --proxies 3 --pages 40 --json",
    "generate again": "workload chen2003 --out made --requests 200 --proxies 2 --pages 30 --force",
    "import": "workload import trace --out imported --json",
    "repeated": "simulate --policy lru --policy sub --capacity 0.05,0.1 --json imported",
    "nowhere": "simulate nowhere --policy lru",
    "broken row": "simulate broken --policy lru --json",
    "broken file": "simulate spoilt --policy lru --json",
    "broken import": "workload import broken --out never",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands are given."""
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
def outcomes(folder: Path, spark: SparkSession) -> dict[str, Outcome]:
    """What each command prints; `spark` keeps the tests that share it in one worker."""
    shutil.copytree(VECTOR, folder / "trace")
    shutil.copytree(VECTOR, folder / "broken")
    with (folder / "broken" / "requests.csv").open("a") as requests:
        requests.write("1.0,0,999999\n")
    shutil.copytree(VECTOR, folder / "spoilt")
    (folder / "spoilt" / "requests.csv").unlink()
    (folder / "spoilt" / "requests.parquet").write_bytes(b"PAR1 and nothing more")
    message = subprocess.run(
        [sys.executable, Path(__file__).parents[1] / "support" / "lab" / "batch.py", folder / "outcomes.json"],
        input=json.dumps([command.split() for command in WHOLE.values()]),
        cwd=folder,
        env=without_settings(),
        text=True,
        check=False,
    )
    assert message.returncode == 0, (folder / "outcomes.err").read_text()
    printed = json.loads((folder / "outcomes.json").read_text())
    (folder / "never").mkdir(exist_ok=False)  # nothing was written there
    assert (folder / "figure.svg").read_text().startswith("<?xml")
    assert not list(folder.glob(".*"))
    return dict(zip(WHOLE, (Outcome(**one) for one in printed), strict=True))


def test_json_is_alone_on_standard_output(outcomes: dict[str, Outcome]) -> None:
    for name, command in WHOLE.items():
        if "--json" in command and "broken" not in name:
            assert outcomes[name].json(), name
            assert outcomes[name].err == "", name


def test_runs_are_in_order_of_options(outcomes: dict[str, Outcome]) -> None:
    runs = [(answer["policy"], answer["capacity"]) for answer in outcomes["words"].json()]
    assert runs == [("lru", 0.05), ("lru", 0.1), ("sub", 0.05), ("sub", 0.1)]


def test_answer_has_names_of_contract(outcomes: dict[str, Outcome]) -> None:
    expected = json.loads((VECTOR / "expected.json").read_text())
    (run,) = [one for one in expected if (one["policy"], one["capacity"]) == ("sub", 0.1)]
    answer = outcomes["words"].json()[3]
    assert answer.pop("hit_ratio") == pytest.approx(run["hits"] / run["requests"])
    assert answer.pop("bytes_per_proxy") is None
    assert answer.pop("cache_bytes") > 0
    del run["proxies"]
    assert answer == run


def test_policies_are_all_replayed_by_one_word(outcomes: dict[str, Outcome]) -> None:
    answers = outcomes["all"].json()
    assert [answer["policy"] for answer in answers] == list(POLICIES)
    assert all(answer["hours"] for answer in answers)


def test_table_is_printed_without_json(outcomes: dict[str, Outcome]) -> None:
    lines = outcomes["table"].out.splitlines()
    assert [line.split()[0] for line in lines] == ["policy", "lru", "lru", "sub", "sub"]
    assert outcomes["table"].err == ""


def test_policy_file_is_replayed_like_any_policy(outcomes: dict[str, Outcome]) -> None:
    own, lfu = outcomes["own"].json()
    assert own["policy"] == "head-start"
    assert own["pushed_pages_needed"] > 0
    assert own["requests"] == lfu["requests"] == sum(row["requests"] for row in own["proxies"])
    assert own["hits"] > lfu["hits"]


def test_generated_trace_is_reported_and_replaced_by_force(outcomes: dict[str, Outcome]) -> None:
    message = outcomes["generate"].json()
    assert (message["out"], message["publications"], message["requests"]) == ("made", 40, 300)
    assert outcomes["generate again"].out.startswith("made: 30 publications, 200 requests, ")


def test_trace_has_same_bytes_in_another_process(
    spark: SparkSession, outcomes: dict[str, Outcome], folder: Path, tmp_path: Path
) -> None:
    assert outcomes["generate again"].code == 0
    generate(spark, News(requests=200, proxies=2, pages=30), tmp_path / "made")
    files = sorted(file.relative_to(tmp_path) for file in tmp_path.rglob("*.parquet"))
    assert files == sorted(file.relative_to(folder) for file in (folder / "made").rglob("*") if file.is_file())
    for file in files:
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes()


def test_imported_trace_gives_same_results(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["import"].json()["requests"] == outcomes["words"].json()[0]["requests"]
    assert outcomes["repeated"].json() == outcomes["words"].json()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "nowhere: no such file or folder"),
        ("broken row", "requests.csv: row 1494: the page has no publication (time 1.0, proxy 0, page 999999)"),
        ("broken file", "spoilt/requests.parquet: not readable as Parquet ("),
        ("broken import", "requests.csv: row 1494: the page has no publication"),
    ],
)
def test_mistake_found_by_spark_is_one_line(outcomes: dict[str, Outcome], name: str, message: str) -> None:
    code, out, err = outcomes[name]
    (line,) = err.splitlines()
    assert line.startswith(f"newsstand: {message}")
    assert (code, out) == (2, "")
