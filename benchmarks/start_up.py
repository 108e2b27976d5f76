"""Start-up of Spark with and without the archive of its classes, side by side in alternating runs.

.venv/bin/python benchmarks/start_up.py [--rounds 3] [--parts session check simulate up]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from subprocess import DEVNULL, PIPE

from newsstand.spark.class_archive import VARIABLE, class_archive
from newsstand.spark.java import cache_folder, find_java

PR_SET_CHILD_SUBREAPER = 36
EXAMPLES = Path(__file__).parents[1] / "examples"
NEWSSTAND = [sys.executable, "-m", "newsstand.cli.main"]

SESSION = """
import json, tempfile, time
began = time.perf_counter()
from pathlib import Path
from newsstand.spark import open_session
marks = {}
def mark(name):
    global began
    marks[name], began = time.perf_counter() - began, time.perf_counter()
with tempfile.TemporaryDirectory() as folder, open_session(brief=True) as spark:
    mark("session")
    spark.sql("SELECT 1").collect()
    mark("first SQL")
    file = Path(folder) / "rows.csv"
    file.write_text("a,b\\n" + "".join(f"{i % 7},{i}\\n" for i in range(1000)))
    rows = spark.read.csv(str(file), header=True, schema="a int, b int")
    rows.count()
    mark("CSV")
    rows.groupBy("a").sum("b").collect()
    mark("aggregation")
    rows.mapInArrow(lambda batches: batches, rows.schema).toArrow()
    mark("Arrow")
mark("stop")
print(json.dumps({**marks, "session and jobs": sum(marks.values())}))
"""


def session(environment: dict[str, str]) -> dict[str, float]:
    ran = subprocess.run([sys.executable, "-c", SESSION], env=environment, stdout=PIPE, text=True, check=True)
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def command(*words: str) -> Callable[[dict[str, str]], dict[str, float]]:
    def run(environment: dict[str, str]) -> dict[str, float]:
        began = time.perf_counter()
        subprocess.run([*NEWSSTAND, *words], env=environment, capture_output=True, check=True)
        return {" ".join(words[:1]): time.perf_counter() - began}

    return run


def up(environment: dict[str, str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as data:
        words = ["up", str(EXAMPLES / "emergencies"), "--data", data, "--base-port", "0", "--json"]
        began = time.perf_counter()
        command = [*NEWSSTAND, *words]
        with subprocess.Popen(command, env=environment, stdout=PIPE, stderr=DEVNULL) as platform:
            assert platform.stdout is not None
            assert platform.stdout.readline(), "the platform has not started"
            ready = time.perf_counter() - began
            platform.send_signal(signal.SIGINT)
        return {"up until ready": ready}


PARTS: dict[str, Callable[[dict[str, str]], dict[str, float]]] = {
    "session": session,
    "check": command("check", str(EXAMPLES / "emergencies")),
    "simulate": command(
        "simulate", str(EXAMPLES / "tiny-trace"), "--policy", "sg2", "--capacity", "0.1", "--master", "local[*]"
    ),
    "up": up,
}


def wait_for_descendants() -> None:
    """Wait for JVMs and workers, too, which outlive the command that started them by a moment."""
    with suppress(ChildProcessError):
        while True:
            os.wait()


def cpu_of_descendants() -> float:
    times = resource.getrusage(resource.RUSAGE_CHILDREN)
    return times.ru_utime + times.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    archive = class_archive(find_java(), cache_folder())
    if archive is None or (file := archive.file) is None:
        sys.exit("there is no archive: run `python -m newsstand.spark.class_training`")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans become children of this process
    print(f"{file.stat().st_size / 1e6:.0f} MB, {' '.join(map(str, find_java()))}; seconds")
    print("| what | without | with | times |\n|---|---|---|---|")
    for part in options.parts:
        runs: dict[str, dict[str, list[float]]] = {}
        for _ in range(options.rounds):
            for wish in ("off", "use"):
                before = cpu_of_descendants()
                measured = PARTS[part]({**os.environ, VARIABLE: wish})
                wait_for_descendants()
                measured[f"{part}, CPU of all processes"] = cpu_of_descendants() - before
                for name, seconds in measured.items():
                    runs.setdefault(name, {}).setdefault(wish, []).append(seconds)
        for name, sides in runs.items():
            off, use = (", ".join(f"{one:.1f}" for one in sorted(sides[wish])) for wish in ("off", "use"))
            ratio = median(sides["off"]) / median(sides["use"])
            print(f"| {name} | {off} | {use} | {ratio:.1f} |", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
