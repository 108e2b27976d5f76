"""The access-time classics that every web cache is compared with."""

from newsstand.caching.policy import Entry, policy


@policy("lru")
def lru(_: Entry) -> float:
    """LRU: all scores are equal, so the entry scored earliest leaves first."""
    return 0.0


@policy("lfu-da", inflates=True)
def lfu_da(e: Entry) -> float:
    """LFU with dynamic ageing (Arlitt et al. 2000)."""
    return e.inflation + e.accesses


@policy("gds", inflates=True)
def gds(e: Entry) -> float:
    """GreedyDual-Size with unit cost (Cao & Irani 1997)."""
    return e.inflation + 1 / e.size


@policy("gdsf", inflates=True)
def gdsf(e: Entry) -> float:
    """GreedyDual-Size-Frequency with unit cost (Cherkasova 1998)."""
    return e.inflation + e.accesses / e.size
