from __future__ import annotations

import os
from pathlib import Path

from newsstand.cluster.log.files.log import FileLog, FileLogLimits
from newsstand.http.server import make_private


def test_files_readable_by_owner_only(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        folder = tmp_path / "data"
        make_private(folder)
        log = FileLog(folder / "log", FileLogLimits(segment_bytes=1))
        for number in range(3):
            log.append("reports", [b"{}"], 1, f"key {number}")
        log.close()
        (folder / "other").write_text("")
        assert folder.stat().st_mode & 0o777 == 0o700
        for path in folder.rglob("*"):
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    finally:
        os.umask(before)
