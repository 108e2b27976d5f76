"""`newsstand compare` gives the same results on both engines, and needs no Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from newsstand.cli.main import run


def test_engines_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lent: Callable[[], AbstractContextManager[None]]
) -> None:
    words = ["compare", "--requests", "500", "--out", str(tmp_path), "--json"]
    with lent():
        assert run([*words, "--engine", "spark"]) == 0
    on_spark = json.loads(capsys.readouterr().out)
    assert run([*words, "--engine", "local"]) == 0
    assert json.loads(capsys.readouterr().out) == on_spark
    assert [file.name for file in tmp_path.iterdir()] == ["hit-ratios.png"]


def test_local_engine_loads_no_spark(tmp_path: Path) -> None:
    program = (
        "import sys; from newsstand.cli.main import run\n"
        f"code = run(['compare', '--requests', '500', '--out', {str(tmp_path)!r}, '--json'])\n"
        "assert code == 0 and not {'pyspark', 'py4j'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["answers"]) == 57
