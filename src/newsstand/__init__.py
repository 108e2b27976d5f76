"""Newsstand: content distribution for publish/subscribe.

Numba keeps compiled code on disk and looks only at the file of the function that it compiles. Ours call functions
of other files, so the code is kept in a folder named after all sources that go into it: a change in any of them
compiles it again.
"""

import hashlib
import os
from pathlib import Path


def _code_folder() -> Path:
    package = Path(__file__).parent
    sources = hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        text = source.read_bytes()
        if b"from numba" in text or source.is_relative_to(package / "caching"):
            sources.update(text)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "newsstand" / f"kernels-{sources.hexdigest()[:16]}"


os.environ.setdefault("NUMBA_CACHE_DIR", str(_code_folder()))
