"""The compiled twins of the page caches, for replay.

Compiled code is kept on disk, in a folder named after the sources of this room: a change of any scoring
function, not only of the kernel around it, compiles anew.
"""

import hashlib
import os
import tempfile
from pathlib import Path

import numba


def _code_folder() -> Path:
    room = Path(__file__).parent.parent
    sources = hashlib.sha256(numba.__version__.encode())
    for source in sorted(room.rglob("*.py")):
        sources.update(source.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "newsstand" / f"kernels-{sources.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"newsstand-{folder.name}-{os.getuid()}"
    return folder


if "NUMBA_CACHE_DIR" not in os.environ:
    numba.config.CACHE_DIR = str(_code_folder())  # type: ignore[attr-defined]
