from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from newsstand.config.files import write_atomically, write_once

KILLED_BEFORE_RENAME = """
import os, signal, sys
from pathlib import Path
from newsstand.config.files import write_atomically
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
write_atomically(Path(sys.argv[1]), b"longer than what is written next")
"""
WRITER = """
import sys
from pathlib import Path
from newsstand.config.files import write_atomically
for number in range(200):
    write_atomically(Path(sys.argv[1]), sys.argv[2].encode() * (1 + number * 37 % 5000))
"""


def test_file_replaced_after_crash_leaves_no_unfinished_file(tmp_path: Path) -> None:
    file = tmp_path / "address"
    write_atomically(file, b"old")
    for _ in range(2):
        killed = subprocess.run([sys.executable, "-c", KILLED_BEFORE_RENAME, file], check=False)
        assert killed.returncode == -signal.SIGKILL
        assert file.read_bytes() == b"old"
    write_atomically(file, b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"address": b"new"}
    assert file.stat().st_mode & 0o777 == 0o600


def test_file_holds_one_content_when_written_concurrently(tmp_path: Path) -> None:
    file = tmp_path / "head"
    write_atomically(file, b"0")
    processes = [subprocess.Popen([sys.executable, "-c", WRITER, file, letter]) for letter in "ab"]
    with ThreadPoolExecutor(2) as pool:
        written = [
            pool.submit(lambda n: write_atomically(file, str(n % 10).encode() * n), n) for n in range(1, 400)
        ]
        while any(process.poll() is None for process in processes):
            assert len(set(file.read_bytes())) == 1
        for one in written:
            one.result()
    assert [process.wait() for process in processes] == [0, 0]
    assert len(set(file.read_bytes())) == 1
    assert list(tmp_path.iterdir()) == [file]


def test_file_written_once_survives_crash_before_its_unfinished_name_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"first")
    (tmp_path / ".token.new").hardlink_to(path)
    assert not write_once(path, b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_unfinished_file_of_others_is_made_private(tmp_path: Path) -> None:
    unfinished = tmp_path / ".token.new"
    unfinished.touch(mode=0o644)
    write_atomically(tmp_path / "token", b"secret")
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
