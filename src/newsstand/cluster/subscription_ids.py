"""Canonical texts and ids of many subscriptions at once: those of `newsstand.model`, in a quarter of the time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from newsstand.model import Values

_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz234567", np.uint8)
_WEIGHTS = np.array([16, 8, 4, 2, 1], np.uint8)
_BYTES, _LENGTH = 15, 24
"""Of an id's digest, and of its text in base 32."""

_quoted = json.JSONEncoder(ensure_ascii=False).encode
_SPELLED: dict[type, Callable[[Any], str]] = {
    int: int.__repr__,
    float: float.__repr__,
    bool: lambda value: "true" if value else "false",
}


def canonical_texts(many: Iterable[Values]) -> list[str]:
    """The canonical text of each of these values."""
    spell = _SPELLED.get
    return [f"[{','.join([spell(type(value), _quoted)(value) for value in values])}]" for values in many]


def subscription_ids(channel: str, texts: Sequence[str], broker: str) -> list[str]:
    """The ids of a broker's subscriptions to a channel, whose values are given by their canonical texts."""
    before, after = f"[{_quoted(channel)}, ", f", {_quoted(broker)}]"
    digests = [blake2b(f"{before}{_quoted(text)}{after}".encode(), digest_size=_BYTES).digest() for text in texts]
    bits = np.unpackbits(np.frombuffer(b"".join(digests), np.uint8)).reshape(-1, 5)
    letters = _LETTERS[bits @ _WEIGHTS].tobytes().decode()
    return [letters[start : start + _LENGTH] for start in range(0, len(letters), _LENGTH)]
