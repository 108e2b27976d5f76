"""Runs that are kept in files, to be found again by what they were computed from.

A name has a digest of the sources that took part: a changed line in any of them, and everything is computed anew.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

import newsstand


@cache
def sources_digest(patterns: tuple[str, ...]) -> str:
    """Of every source that measurements depend on, by patterns in the package's folder."""
    package = Path(newsstand.__file__).parent
    sources = hashlib.sha256()
    for source in sorted({source for pattern in patterns for source in package.glob(pattern)}):
        sources.update(f"{source.relative_to(package)}\n".encode() + source.read_bytes())
    return sources.hexdigest()[:16]


def digest(text: str) -> str:
    """A short name for a description."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def write_whole(file: Path, what: object) -> None:
    """Write a file whole or not at all."""
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(what))
    partial.replace(file)
