"""`newsstand replay`: tables in all formats, all vectors through the command, mistakes in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from newsstand.broker.event_log import EventLog
from newsstand.caching import RESULT_POLICIES
from newsstand.cli.main import run
from newsstand.errors import BadOption, BadTrace, UnknownPolicy
from newsstand.lab.results.events import COLUMNS, KINDS, BrokerEvents, events_of, read_events
from newsstand.lab.results.replay import (
    WORTH_COMPILING,
    ReplaySetting,
    choose_implementation,
    replay,
)

FOLDER = Path(__file__).parents[2] / "vectors" / "bad2018"
VECTORS: list[dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text())["tables"]
HEADER = ",".join(COLUMNS) + "\n"
BASIC = FOLDER / "01_basic.csv"
START = 1_800_000_000_000


def same(one: BrokerEvents, other: BrokerEvents) -> bool:
    return all(np.array_equal(getattr(one, column), getattr(other, column)) for column in COLUMNS)


def as_arrow(events: BrokerEvents) -> pa.Table:
    """As pandas and others write it: fields that are not used are null."""
    kinds = np.array(KINDS)[events.kind]
    used = {
        "subscriber": kinds != "result",
        "subscription": ~np.isin(kinds, ("login", "logout")),
        "size": kinds == "result",
    }
    columns = {name: pa.array(getattr(events, name), mask=~mask) for name, mask in used.items()}
    return pa.table({"time_ms": events.time_ms, "kind": kinds.tolist(), **columns})


def answers(capsys: pytest.CaptureFixture[str], *words: object) -> list[dict[str, Any]]:
    assert run(["replay", *map(str, words), "--json"]) == 0
    output: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return output


class TestVectors:
    @pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["file"])
    @pytest.mark.parametrize("expiry", ["cache", "object"])
    @pytest.mark.parametrize("evict", ["put", "after"])
    def test_command_agrees_with_vectors(
        self, vector: dict[str, Any], evict: str, expiry: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        runs = {
            (run["policy"], run["cache_bytes"]): run
            for run in vector["runs"]
            if (run["evict"], run["expiry"]) == (evict, expiry)
        }
        parameters = [
            word for name, value in vector["params"].items() for word in ("--" + name.replace("_", "-"), value)
        ]
        sizes = sorted({size for _, size in runs})
        output = answers(
            capsys,
            *(FOLDER / vector["file"], "--policy", *dict.fromkeys(policy for policy, _ in runs)),
            *("--cache-bytes", *sizes, "--evict", evict, "--expiry", expiry, *parameters),
        )
        compared = 0
        for answer in output:
            wanted = runs.get((answer["policy"], answer["cache_bytes"]))
            if wanted is not None:
                compared += 1
                assert set(answer) == set(wanted)
                for name, value in wanted.items():
                    inexact = isinstance(value, (float, list))
                    assert answer[name] == (pytest.approx(value, rel=1e-9, abs=1e-9) if inexact else value), name
        assert compared == len(runs) > 0

    def test_command_answers_in_order_of_options(self, capsys: pytest.CaptureFixture[str]) -> None:
        output = answers(capsys, "--cache-bytes", 500, 100, "--policy", "ttl,lru", "--evict", "after", BASIC)
        assert [(one["policy"], one["cache_bytes"]) for one in output] == [
            *(("ttl", 500), ("ttl", 100)),
            *(("lru", 500), ("lru", 100)),
        ]
        output = answers(capsys, BASIC, "--cache-bytes", 500)
        assert [one["policy"] for one in output] == list(RESULT_POLICIES)


class TestReading:
    def test_events_may_be_parquet_or_csv(self, tmp_path: Path) -> None:
        events = read_events(FOLDER / "05_churn.csv")
        pq.write_table(as_arrow(events), tmp_path / "events.parquet")
        assert same(read_events(tmp_path / "events.parquet"), events)
        assert same(read_events(tmp_path), events)

    def test_events_parts_are_read_in_order_of_names(self, tmp_path: Path) -> None:
        events = read_events(FOLDER / "05_churn.csv")
        table = as_arrow(events)
        folder = tmp_path / "parts"
        folder.mkdir()
        (folder / "_SUCCESS").touch()
        for part in (2, 0, 1):
            first = part * 100
            pq.write_table(table.slice(first, 100 if part < 2 else None), folder / f"part-{part}.parquet")
        assert same(read_events(folder), events)
        (folder / "part-0.parquet").rename(folder / "part-3.parquet")
        with pytest.raises(
            BadTrace, match=r"part-3\.parquet: row 1: time_ms \d+ is before \d+, where the last part ends"
        ):
            read_events(folder)

    def test_events_may_have_floats_for_missing_integers(self, tmp_path: Path) -> None:
        table = as_arrow(read_events(BASIC))
        floats = table.set_column(4, "size", table["size"].cast(pa.float64()))
        pq.write_table(floats, tmp_path / "events.parquet")
        assert same(read_events(tmp_path / "events.parquet"), read_events(BASIC))

    def test_events_columns_may_be_in_any_order(self, tmp_path: Path) -> None:
        file = tmp_path / "events.csv"
        file.write_text("size,note,kind,subscription,subscriber,time_ms\n,x,login,-7,3,5\n9,,result,2,,6\n")
        assert same(read_events(file), events_of([(5, "login", 3, 0, 0), (6, "result", 0, 2, 9)]))

    def test_events_may_be_empty(self, tmp_path: Path) -> None:
        file = tmp_path / "events.csv"
        file.write_text(HEADER)
        events = read_events(file)
        assert (len(events), events.end_ms) == (0, 0)
        measured = replay(events, ReplaySetting("ttl", 100, end_ms=600_000))
        assert (measured["hits"], measured["hit_ratio"], measured["sum_rho_T"]) == (0, None, [0.0, 0.0])

    @pytest.mark.parametrize(
        ("row", "said"),
        [
            ("7,nap,1,,", "row 2: kind is not one of login, logout, subscribe, unsubscribe, result"),
            (",login,1,,", "row 2: time_ms is missing"),
            ("-1,login,1,,", "row 2: time_ms is negative"),
            (
                "4,login,1,,",
                "row 2: time_ms is before that of the row above (time_ms 4, kind login, subscriber 1)",
            ),
            ("7,login,,,", "row 2: subscriber is missing"),
            ("7,login,-2,,", "row 2: subscriber is negative"),
            ("7,subscribe,1,,", "row 2: subscription is missing"),
            ("7,result,,1,", "row 2: size is missing"),
            ("7,result,,1,0", "row 2: size is not positive"),
            ("7,result,,1,9007199254740993", "row 2: size is over 2^53"),
            ("7,result,,1,many", "row 2: size is 'many', not a whole number"),
            ("7,result,,1.5,3", "row 2: subscription is '1.5', not a whole number"),
            ("7,login,1", "row 2: 3 fields, not 5 (7,login,1)"),
        ],
    )
    def test_events_error_names_row(self, row: str, said: str, tmp_path: Path) -> None:
        file = tmp_path / "mine.csv"
        file.write_text(f"{HEADER}5,login,0,,\n{row}\n8,logout,0,,\n")
        with pytest.raises(BadTrace) as output:
            read_events(file)
        assert str(output.value).startswith(f"{file}: {said}")

    def test_events_error_names_row_of_parquet(self, tmp_path: Path) -> None:
        table = as_arrow(events_of([(5, "login", 0, 0, 0), (3, "logout", 0, 0, 0)]))
        pq.write_table(table, tmp_path / "mine.parquet")
        with pytest.raises(BadTrace, match=r"mine\.parquet: row 2: time_ms is before"):
            read_events(tmp_path / "mine.parquet")
        pq.write_table(table.drop_columns("size"), tmp_path / "mine.parquet")
        with pytest.raises(BadTrace, match=r"mine\.parquet: column 'size' is missing"):
            read_events(tmp_path / "mine.parquet")


class TestLogs:
    """The folder `access/` of a live broker."""

    def test_times_count_from_start(self, tmp_path: Path) -> None:
        log = EventLog(tmp_path, START)
        log.event(START + 10, "login", "ann")
        log.event(START + 20, "subscribe", "ann", "floods")
        log.results_pulled(START + 30, "floods", [7, 8])
        log.event(START + 25, "logout", "ann")  # the clock was set back
        log.flush(START + 1000)
        wanted = events_of(
            [
                (10, "login", 0, 0, 0),
                (20, "subscribe", 0, 0, 0),
                (30, "result", 0, 0, 7),
                (30, "result", 0, 0, 8),
                (30, "logout", 0, 0, 0),
            ]
        )
        assert same(read_events(tmp_path), wanted)
        assert same(read_events(tmp_path / "events.csv"), wanted)

    def test_rotated_files_come_first(self, tmp_path: Path) -> None:
        log = EventLog(tmp_path, START, largest=100)
        log.event(START, "login", "ann")
        log.event(START, "subscribe", "ann", "floods")
        for second in range(1, 30):
            log.results_pulled(START + second * 1000, "floods", [second])
            log.flush(START + second * 1000)
        assert len(list(tmp_path.glob("until-*"))) > 3
        events = read_events(tmp_path)
        assert events.size[events.size > 0].tolist() == list(range(1, 30))
        assert replay(events, ReplaySetting("lru", 1000))["hits_push"] == 29

    def test_truncated_row_of_log_is_skipped(self, tmp_path: Path) -> None:
        log = EventLog(tmp_path, START)
        log.event(START + 10, "login", "ann")
        log.flush(START + 10)
        with (tmp_path / "events.csv").open("a") as lines:
            lines.write(f"{START + 20},log")
        assert read_events(tmp_path).time_ms.tolist() == [10]


class TestMistakes:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ("nowhere.csv --cache-bytes 5", "nowhere.csv: no such file or folder"),
            ("TABLE", "Missing option '--cache-bytes'"),
            ("TABLE --cache-bytes", "--cache-bytes: missing value; give at least one"),
            ("TABLE --cache-bytes=-5", "--cache-bytes -5: must be at least 0"),
            ("TABLE --cache-bytes 5 --policy lfu", "unknown policy 'lfu' of result caches; known: nc, lru"),
            ("TABLE --cache-bytes 5 --end-ms 7999", "--end-ms 7999: the last event is later, at 8000"),
            ("TABLE --cache-bytes 5 --window-ms 0", "--window-ms 0: must be at least 1"),
            ("TABLE --cache-bytes 5 --windows 0", "--windows 0: must be at least 1"),
            ("TABLE --cache-bytes 5 --cap-ms=-1", "--cap-ms -1: must be at least 0"),
            ("TABLE --cache-bytes 5 --evict never", "Invalid value for '--evict'"),
            (
                "TABLE --cache-bytes 5 --engine local --master local[1]",
                "--master: --engine local does not use Spark; choose spark or auto",
            ),
            ("TABLE --cache-bytes 5 --figure x.gif", "--figure x.gif: the name must end in .svg, .png or .pdf"),
        ],
    )
    def test_mistake_is_one_line(self, words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["replay", *words.replace("TABLE", str(BASIC)).split()]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line

    def test_setting_rejects_invalid_values(self) -> None:
        with pytest.raises(UnknownPolicy):
            ReplaySetting("lfu", 5)
        with pytest.raises(BadOption, match="expiry never: must be one of cache, object"):
            ReplaySetting("lru", 5, expiry="never")  # type: ignore[arg-type]


def test_command_prints_table_and_draws_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = tmp_path / "drawn.svg"
    words = ["replay", str(BASIC), "--cache-bytes", "1000", "2000", "--figure", str(drawn)]
    assert run([*words, "--policy", "lru", "lsc"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-4:]] == ["lru", "lru", "lsc", "lsc"]
    assert "cache size (MB)" in drawn.read_text()
    assert run(["replay", str(BASIC), "--cache-bytes", "1000", "--figure", str(tmp_path / "bars.svg")]) == 0


CHURN_WORDS = (
    *(FOLDER / "05_churn.csv", "--cache-bytes", 300_000, 3_000_000),
    *("--evict", "after", "--end-ms", 150_000),
)


@pytest.mark.parametrize("implementation", ["compiled", "core"])
def test_implementations_agree(implementation: str, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = answers(capsys, *CHURN_WORDS, "--implementation", implementation)
    assert chosen == answers(capsys, *CHURN_WORDS)


@pytest.mark.parametrize("implementation", ["compiled", "core"])
def test_engines_agree(
    implementation: str, capsys: pytest.CaptureFixture[str], lent: Callable[[], AbstractContextManager[None]]
) -> None:
    words = (*CHURN_WORDS, "--implementation", implementation)
    with lent():
        on_spark = answers(capsys, *words, "--engine", "spark")
    assert on_spark == answers(capsys, *words, "--engine", "local")
    assert on_spark == answers(capsys, *words)


def test_local_engine_starts_no_spark() -> None:
    words = [str(word) for word in (*CHURN_WORDS, "--implementation", "compiled", "--json")]
    code = "import sys; from newsstand.cli.main import run; run(sys.argv[1:]); assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, "replay", *words], check=True, stdout=subprocess.DEVNULL)


def test_implementation_is_chosen_by_size() -> None:
    def events(number: int) -> BrokerEvents:
        zeros = np.zeros(number, np.int64)
        return BrokerEvents(zeros, zeros.astype(np.uint8), zeros, zeros, zeros)

    settings = [ReplaySetting(policy, 100) for policy in ("lru", "lsc")]
    small, large = events(WORTH_COMPILING // 2 - 1), events(WORTH_COMPILING // 2)
    assert [choose_implementation(table, settings) for table in (small, large)] == ["core", "compiled"]


def test_command_uses_spark_if_configured(
    capsys: pytest.CaptureFixture[str], lent: Callable[[], AbstractContextManager[None]]
) -> None:
    words = (BASIC, "--policy", "lru", "ttl", "--cache-bytes", 500, 1000)
    with lent():
        on_spark = answers(capsys, *words, "--master", "local[2]")
    assert on_spark == answers(capsys, *words)
