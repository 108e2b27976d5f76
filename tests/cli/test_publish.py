"""`newsstand publish`: every record counts once, even if it is repeated, rejected or cut off."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cluster.standin import StandIn, serving

from newsstand.auth.api_tokens import admin_token, admin_token_path, find_token, new_token
from newsstand.cli.data.batches import LineReader, RecordBatch, array_batches, follow
from newsstand.cli.data.publish import MOST_SHOWN, BatchSender, batches
from newsstand.cli.main import run
from newsstand.errors import BadInput, Busy, NewsstandError
from newsstand.http.client import BlockingHttpClient


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A cluster that serves the app folder `app` of the working directory, with its own token."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("NEWSSTAND_TOKEN", raising=False)
    Path("app").mkdir()
    made = StandIn(Path("app"))
    token, _ = admin_token(made.app.data, bytes(32))
    with serving(made, {"admin": token}) as url:
        (made.app.data / "address").write_text(url + "\n")
        yield made


def line(n: int) -> str:
    return json.dumps({"id": f"e{n}", "kind": "flood"})


def ids(cluster: StandIn) -> list[str]:
    return [json.loads(one)["id"] for one in cluster.published.get("emergencies", [])]


def publish(*words: str) -> int:
    return run(["publish", "app", "emergencies", *words])


def test_file_is_published_in_batches_and_second_run_adds_nothing(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("reports.ndjson").write_text("\n".join(line(n) for n in range(25)))
    assert publish("reports.ndjson", "--batch", "10") == 0
    assert capsys.readouterr().out == "emergencies: 25 accepted\n"
    assert ids(cluster) == [f"e{n}" for n in range(25)]
    assert publish("reports.ndjson", "--batch", "10", "--json") == 0
    message = json.loads(capsys.readouterr().out)
    assert (message["accepted"], message["repeated"], message["first"], message["last"]) == (0, 25, 1, 25)
    assert publish("reports.ndjson", "--key-prefix", "again") == 0
    assert len(ids(cluster)) == 50


def test_json_array_and_single_object_are_published(cluster: StandIn) -> None:
    Path("array.json").write_text("[\n" + ",\n".join(line(n) for n in range(5)) + "\n]")
    Path("one.json").write_text(json.dumps({"id": "e5", "kind": "fire"}, indent=2))
    assert publish("array.json", "--batch", "2") == 0
    assert publish("one.json") == 0
    assert ids(cluster) == [f"e{n}" for n in range(6)]


def test_standard_input_is_published(cluster: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(line(1).encode())))
        assert publish("-") == 0
    assert ids(cluster) == ["e1", "e1"]


def test_rejected_records_are_reported_by_lines_and_others_accepted(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("reports.ndjson").write_text(f'{line(1)}\n\n{{"id": 2}}\n{line(3)}\nnonsense\n{line(5)}\n')
    assert publish("reports.ndjson", "--batch", "2") == 2
    printed = capsys.readouterr()
    assert [text.split(" ")[0] for text in printed.err.splitlines()] == ["reports.ndjson:3:", "reports.ndjson:5:"]
    assert printed.out == "emergencies: 3 accepted, 2 rejected\n"
    assert ids(cluster) == ["e1", "e3", "e5"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.ndjson"], "absent.ndjson: no such file"),
        (["-", "--follow"], "--follow: standard input cannot be followed"),
        (["bad.json"], "bad.json: "),
        (["good.ndjson", "--token-file", "absent"], "--token-file absent: cannot be read"),
        (["good.ndjson", "--token-file", "wrong.token"], "records 1 to 1: http://127.0.0.1:"),
        (
            ["good.ndjson", "--url", "127.0.0.1:1"],
            "--url 127.0.0.1:1: must be a URL such as http://127.0.0.1:8780",
        ),
        (["good.ndjson", "--url", "http://127.0.0.1:1", "--patience", "0"], "records 1 to 1: http://127.0.0.1:1"),
    ],
)
def test_mistake_is_one_line(
    words: list[str], message: str, cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("good.ndjson").write_text(line(1))
    Path("bad.json").write_text("{}\n{}")
    Path("wrong.token").write_text(new_token("x", ["read"], b"w" * 32)[0])
    assert publish(*words) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"newsstand: {message}")
    assert cluster.published == {}


@pytest.mark.parametrize("name", ["reports.csv", "reports.ndjson", "reports.json", "-"])
@pytest.mark.parametrize(
    ("content", "converted"),
    [
        ("id,kind\ne1,flood\n", ""),
        ("\ufeffid;kind\r\ne1;flood\r\n", ", sep=';'"),
        ('"id"\t"kind"\n', ", sep='\\t'"),
        ("1,2,3", ""),
    ],
)
def test_csv_is_recognised(
    name: str,
    content: str,
    converted: str,
    cluster: StandIn,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path(name).write_bytes(content.encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    assert publish(name) == 2
    (said,) = capsys.readouterr().err.splitlines()
    start = f"{'standard input' if name == '-' else name}, line 1: this looks like CSV; publish takes JSON or one"
    assert said.startswith(f"newsstand: {start} JSON record per line; convert it")
    file = "reports" if name == "reports.csv" else "FILE"
    assert f"pandas.read_csv('{file}.csv'{converted}).to_json('{file}.ndjson'" in said
    assert cluster.published == {}


def test_csv_is_recognised_in_followed_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with pytest.raises(BadInput, match="log, line 2: this looks like CSV"):
        followed(path, Growth(add(path, "\nid,kind\n")))
    path.write_text("{}\n")
    assert [one.body for one in followed(path, Growth())] == [b"{}"]


@pytest.mark.parametrize("content", ['"a,b"\n', '{"id": 1,}\n', "so, no\n{}\n", "nonsense\n", "\n"])
def test_csv_is_not_assumed_for_malformed_lines_or_other_types(content: str, tmp_path: Path) -> None:
    path = tmp_path / "x.ndjson"
    path.write_text(content)
    read = [text for one in batches(str(path), 10) for text in one.body.split(b"\n")]
    assert read == [text for text in content.encode().split(b"\n") if text]


def test_busy_cluster_is_awaited_and_full_one_is_not(cluster: StandIn) -> None:
    waits: list[float] = []
    token = find_token(cluster.app.data, None, None)
    url = (cluster.app.data / "address").read_text().strip()
    one = RecordBatch(line(1).encode(), "ndjson", (1,), 0, 10)
    with BlockingHttpClient(url, headers={"Authorization": f"Bearer {token}"}) as client:
        sender = BatchSender(
            client,
            "/datasets/emergencies/publications",
            100,
            wait=waits.append,
            chance=lambda: 0.5,
            clock=lambda: sum(waits),
        )
        cluster.failing = [Busy("behind", 7), ZeroDivisionError()]
        assert sender.send(one, "k").accepted == 1
        assert waits == [7, 0.2]
        cluster.failing = [Busy("behind", 60), Busy("behind", 60)]
        with pytest.raises(Busy, match="records 1 to 1: behind; gave up, run the command again"):
            sender.send(one, "l")
        cluster.failing = [NewsstandError("odd")]
        with pytest.raises(BadInput, match="records 1 to 1: odd"):
            sender.send(one, "m")


def test_wait_for_unresponsive_cluster_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    waits: list[float] = []
    with BlockingHttpClient("http://127.0.0.1:1") as client:
        sender = BatchSender(
            client,
            "/datasets/emergencies/publications",
            60,
            "app/data/address",
            wait=waits.append,
            chance=lambda: 0.1,
            clock=lambda: sum(waits),
        )
        with pytest.raises(
            BadInput, match=r"records 1 to 1: http://127\.0\.0\.1:1 \(from app/data/address\) does not"
        ):
            sender.send(RecordBatch(line(1).encode(), "ndjson", (1,), 0, 10), "k")
    said = capsys.readouterr().err.splitlines()
    assert all(one.startswith("waiting for http://127.0.0.1:1 (from app/data/address): does not") for one in said)
    assert said[0].endswith("giving up in 60 s")
    left = [int(one.split()[-2]) for one in said]
    assert 2 < len(said) < len(waits)
    assert all(earlier - later >= 9 for earlier, later in pairwise(left)), "whole seconds"


@pytest.mark.parametrize("origin", ["--url", "app/data/address", "[cluster] of app/newsstand.toml"])
def test_wait_report_names_source_of_address(
    origin: str, cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("good.ndjson").write_text(line(1))
    address = cluster.app.data / "address"
    words = ["--url", "http://127.0.0.1:1"] if origin == "--url" else []
    address.unlink()
    if origin == "app/data/address":
        address.write_text("http://127.0.0.1:1\n")
    elif not words:
        file = Path("app", "newsstand.toml")
        file.write_text(file.read_text().replace("[cluster]", "[cluster]\nport = 1"))
    assert publish("good.ndjson", "--patience", "0.5", *words) == 2
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith(f"waiting for http://127.0.0.1:1 (from {origin}): does not answer (")
    assert last.startswith(f"newsstand: records 1 to 1: http://127.0.0.1:1 (from {origin}) does not answer (")
    assert last.endswith("start the cluster or name its address with --url, and run the command again to go on")


def test_cluster_token_is_found(cluster: StandIn) -> None:
    assert admin_token_path(cluster.app.data).exists()
    Path("good.ndjson").write_text(line(1))
    assert publish("good.ndjson") == 0


# Batches


@given(
    st.lists(st.sampled_from([b"", b"{}", b'{"id": "x"}', b"  "]), max_size=30), st.integers(1, 7), st.booleans()
)
def test_batches_contain_each_line_once_with_its_number(lines: list[bytes], most: int, ended: bool) -> None:
    content = b"\n".join(lines) + (b"\n" if ended else b"")
    reader = LineReader(io.BytesIO(content))
    batches = []
    while (one := reader.batch(most)) is not None:
        batches.append(one)
    seen = [pair for one in batches for pair in zip(one.numbers, filter(None, one.body.split(b"\n")), strict=True)]
    assert seen == [(n, text.strip()) for n, text in enumerate(lines, 1) if text.strip()]
    assert all(len(one.numbers) <= most for one in batches)
    assert [one.start for one in batches] == [0, *(one.end for one in batches)][: len(batches)]


@given(st.integers(1, 20), st.integers(1, 7))
def test_array_is_divided_into_arrays(count: int, most: int) -> None:
    content = json.dumps([{"n": n} for n in range(count)]).encode()
    batches = list(array_batches(content, "x.json", most))
    assert [one["n"] for batch in batches for one in json.loads(batch.body)] == list(range(count))
    assert [n for batch in batches for n in batch.numbers] == list(range(1, count + 1))


def test_key_distinguishes_different_batches() -> None:
    plain = RecordBatch(b"{}", "ndjson", (1,), 0, 2)
    others = [
        RecordBatch(b"[]", "ndjson", (1,), 0, 2),
        RecordBatch(b"{}", "ndjson", (1,), 3, 5),
        RecordBatch(b"{}", "ndjson", (1,), 0, 2, generation=1),
    ]
    keys = {plain.key("a"), plain.key("b"), *(one.key("a") for one in others)}
    assert len(keys) == 5
    assert plain.key("a") == RecordBatch(b"{}", "ndjson", (1,), 0, 2).key("a")


# Following


class Growth:
    """Stands for the time that passes: each wait does the next thing to the file; then it is Ctrl-C."""

    def __init__(self, *steps: object) -> None:
        self.steps = list(steps)

    def __call__(self, seconds: float) -> None:
        if not self.steps:
            raise KeyboardInterrupt
        step = self.steps.pop(0)
        if callable(step):
            step()


def followed(path: Path, growth: Growth, most: int = 100) -> list[RecordBatch]:
    batches = []
    try:
        for one in follow(path, path.with_suffix(".progress"), most, growth):
            batches.append(one)  # noqa: PERF402  what came before Ctrl-C counts
    except KeyboardInterrupt:
        pass
    return batches


def add(path: Path, text: str) -> object:
    def step() -> None:
        with path.open("a") as file:
            file.write(text)

    return step


def test_growing_file_is_followed_by_complete_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    growth = Growth(add(path, "a\nb"), add(path, "c\n"), None, add(path, "d\n"))
    batches = followed(path, growth)
    assert [one.body for one in batches] == [b"a", b"bc", b"d"]
    assert [one.numbers for one in batches] == [(1,), (2,), (3,)]
    assert followed(path, Growth(add(path, "e\n")))[0].numbers == (4,)


def test_interrupted_batch_is_repeated_exactly(tmp_path: Path) -> None:
    path, kept = tmp_path / "log", tmp_path / "kept"
    path.write_text("a\nb\n\n")
    (cut_off,) = islice(follow(path, kept, 100), 1)  # taken, and never answered
    path.write_text("a\nb\n\nc\n")
    first, second = islice(follow(path, kept, 100), 2)
    assert (first, first.key("x")) == (cut_off, cut_off.key("x"))
    assert (second.body, second.numbers) == (b"c", (4,))
    (third,) = islice(follow(path, kept, 100), 1)
    assert third.key("x") == second.key("x")


def test_replaced_or_truncated_file_restarts_under_other_keys(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a\n")

    def rotate() -> None:
        with path.open("a") as file:
            file.write("last\n")
        path.rename(tmp_path / "log.1")

    growth = Growth(rotate, None, lambda: path.write_text("a\n"), lambda: path.write_text(""), add(path, "a\n"))
    batches = followed(path, growth)
    assert [one.body for one in batches] == [b"a", b"last", b"a", b"a"]
    assert len({one.key("x") for one in batches}) == 4


def test_follow_ends_with_ctrl_c_and_resumes(
    cluster: StandIn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path("reports.ndjson")
    path.write_text(line(1) + "\n")
    for n in (2, 3):
        growth = Growth(add(path, line(n) + "\n"))
        monkeypatch.setattr("newsstand.cli.data.publish.follow", lambda *given, g=growth: follow(*given, g))
        assert publish("reports.ndjson", "--follow") == 0
    assert ids(cluster) == ["e1", "e2", "e3"]
    assert capsys.readouterr().out == "emergencies: 2 accepted\nemergencies: 1 accepted\n"


def test_rejected_records_are_reported_up_to_limit(cluster: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.ndjson").write_text("nonsense\n" * (MOST_SHOWN + 30))
    assert publish("bad.ndjson") == 2
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == MOST_SHOWN + 1
    assert f"{MOST_SHOWN + 30} rejected" in printed.out


def test_deeply_nested_file_is_rejected_in_one_line(cluster: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    Path("deep.json").write_text("[" * 5000 + "]" * 5000)
    assert publish("deep.json") == 2
    assert capsys.readouterr().err == "newsstand: deep.json: JSON is nested too deeply\n"
