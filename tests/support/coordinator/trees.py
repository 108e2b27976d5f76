"""Properties of trees of brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from newsstand.coordinator.model import Link
from newsstand.coordinator.overlay import neighbours


def is_tree(links: Iterable[Link], names: Iterable[str]) -> bool:
    """Whether the links reach everybody, and are as few as that needs."""
    links, names = set(links), set(names)
    reached, edge = set(), [min(names)] if names else []
    while edge:
        name = edge.pop()
        reached.add(name)
        edge += [one for one in neighbours(links, name) if one not in reached]
    ends = {end for link in links for end in link}
    return reached == names >= ends and len(links) == max(0, len(names) - 1) and all(a < b for a, b in links)


def degrees(links: Iterable[Link]) -> Counter[str]:
    return Counter(end for link in links for end in link)
