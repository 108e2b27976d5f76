"""Kernels that an earlier process has compiled are loaded without Numba's compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPLAY = """
import sys
import numpy as np
from newsstand.caching import POLICIES
from newsstand.caching.kernels.pages.compiled import compiled
from newsstand.workload.trace.numbering import number_pages
events, sizes, outcome = np.array([0, 1, 0, 1], np.int32), np.array([4, 4]), np.zeros(4, np.uint8)
compiled(POLICIES["lru"])(events, sizes, np.zeros(2, np.int64), int(sys.argv[1]), 2.0, outcome)
keys = np.array([7, 7, 9])
print(outcome.tolist(), number_pages(keys, keys, keys).numbers.tolist(), "numba.np.linalg" in sys.modules)
"""


def test_kernels_on_disk_are_loaded_without_compiler(tmp_path: Path) -> None:
    def replay(capacity: int) -> str:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        run = [sys.executable, "-c", REPLAY, str(capacity)]
        return subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout

    assert replay(8) == "[0, 0, 1, 1] [0, 0, 1] True\n"
    assert replay(8) == "[0, 0, 1, 1] [0, 0, 1] False\n"
    assert replay(4) == "[0, 0, 0, 0] [0, 0, 1] False\n"
