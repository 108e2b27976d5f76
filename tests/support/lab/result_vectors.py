"""The test vectors of the result policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "vectors" / "bad2018"


VECTORS: dict[str, dict[str, Any]] = {
    vector["file"]: vector for vector in json.loads((FOLDER / "expected.json").read_text())["tables"]
}


POLICIES = ["nc", "lru", "lsc", "lscz", "lsd", "exp", "ttl"]
