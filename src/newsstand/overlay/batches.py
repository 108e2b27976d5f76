"""Publications cut into answers of a size that links carry well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from newsstand.overlay.messages import Publication

ENOUGH_BYTES = 512 * 1024
"""Of bodies in one response."""


def batches(found: Sequence[Publication], most: int) -> Iterator[tuple[Publication, ...]]:
    """Publications in order, up to `most` together, fewer if their bodies are long; one empty batch of none."""
    batch: list[Publication] = []
    size = 0
    for one in found:
        if batch and (len(batch) == most or size + len(one.body) > ENOUGH_BYTES):
            yield tuple(batch)
            batch, size = [], 0
        batch.append(one)
        size += len(one.body)
    yield tuple(batch)
