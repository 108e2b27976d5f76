"""Runs commands one after the other in one process, so that they share one JVM: argument lists in, outcomes out.

`python tests/documented.py < commands.json > outcomes.json`; each command still opens and stops its own session.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from newsstand.cli.main import run


def outcome(arguments: list[str]) -> dict[str, object]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = run(arguments)
    return {"code": code, "output": out.getvalue()}


if __name__ == "__main__":
    json.dump([outcome(arguments) for arguments in json.load(sys.stdin)], sys.stdout)
