"""Runs commands one after the other in one process, which share one JVM, and keeps apart what each printed.

`python tests/cli/batch.py OUTCOMES < commands.json`; standard output and error are taken at the file descriptors,
so that what the JVM says counts too.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from newsstand.cli.main import run


def main(outcomes: Path) -> None:
    commands = json.load(sys.stdin)
    streams = [outcomes.with_suffix(f".{name}") for name in ("out", "err")]
    for number, stream in enumerate(streams, start=1):
        os.dup2(os.open(stream, os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
    told = []
    for arguments in commands:
        before = [stream.stat().st_size for stream in streams]
        code = run(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
        printed = [stream.read_bytes()[start:].decode() for stream, start in zip(streams, before, strict=True)]
        told.append({"code": code, "out": printed[0], "err": printed[1]})
    outcomes.write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
