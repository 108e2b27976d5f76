"""The emergencies example, and distances computed independently of the package."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

EXAMPLE = Path(__file__).parents[3] / "examples" / "emergencies"


def load(name: str) -> ModuleType:
    """Import a module of the example under the name that its siblings use."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def kilometres(a: dict[str, float], b: dict[str, float]) -> float:
    """Return the haversine distance, written independently of the package."""
    lat1, lon1, lat2, lon2 = map(math.radians, (a["lat"], a["lon"], b["lat"], b["lon"]))
    h = math.sin((lat2 - lat1) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    return 2 * 6371.0088 * math.asin(math.sqrt(h))
