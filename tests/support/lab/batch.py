"""Runs commands one after the other in one process, which share one Spark, and keeps apart what each printed.

`python tests/support/lab/batch.py OUTCOMES [--together] < commands.json`; standard output and error are taken
at the file descriptors, so that what the JVM says counts too. With `--together` they are one stream, as in a
terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from newsstand.cli.main import run


@contextmanager
def one_context() -> Iterator[None]:
    """Instead of stopping Spark, a command leaves a new session to the next: starting costs more than the work."""
    stop = SparkSession.stop

    def hand_on(session: SparkSession) -> None:
        SparkSession._instantiatedSession = None
        session.newSession()  # with its own settings and views; it is what the next command is given

    SparkSession.stop = hand_on  # type: ignore[method-assign]
    try:
        yield
    finally:
        SparkSession.stop = stop  # type: ignore[method-assign]
        if last := SparkSession._instantiatedSession:
            last.stop()


def main(outcomes: Path, *, together: bool) -> None:
    commands = json.load(sys.stdin)
    streams = [outcomes.with_suffix(".out"), outcomes.with_suffix(".out" if together else ".err")]
    for number, stream in enumerate(streams, start=1):
        os.dup2(os.open(stream, os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
    answer = []
    with one_context():
        for arguments in commands:
            before = [stream.stat().st_size for stream in streams]
            code = run(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
            printed = [stream.read_bytes()[start:].decode() for stream, start in zip(streams, before, strict=True)]
            answer.append({"code": code, "out": printed[0], "err": printed[1]})
    outcomes.write_text(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]), together="--together" in sys.argv[2:])
