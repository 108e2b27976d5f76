"""Journals of a run, one JSON object a line: written during the run, read by the oracle afterwards."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class Journal:
    """A file of JSON lines. Times are in seconds of the monotonic clock."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", buffering=1)

    def write(self, **line: object) -> None:
        self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        self._file.close()


def now() -> float:
    return round(time.monotonic(), 4)


def lines(file: Path) -> list[Line]:
    return [json.loads(text) for text in file.read_text().splitlines()]
