"""What is no mistake in an app's `[push]` and `[[brokers]]`, and yet would keep pages from being pushed."""

from __future__ import annotations

from collections.abc import Iterator

from newsstand.cluster.app_folder import App
from newsstand.platform.declared import Declared, Table


def push_notes(app: App, declared: Declared) -> Iterator[str]:
    """One line each; none if pages are not to be pushed at all."""
    push = app.push
    if not push.enabled:
        return
    if not push.place.known:
        yield "push: the cluster has no place (lat and lon, or node): nobody is nearer to a broker than to it"
    keeping = [broker for broker in declared.brokers if broker.get("push_cache_bytes") != 0]
    if declared.brokers and not any(_has_place(broker) for broker in keeping):
        yield "push: no broker has room for copies and a place (lat and lon, or node): there is nobody to push to"
    nodes = {node for link in push.links for node in link}
    for key in ("caching", "lookup"):
        if getattr(push, key) == "hops" and not nodes:
            yield f"push.{key}: is 'hops', but there are no links to count"
    if nodes:
        placed = [
            ("push", push.node),
            *((f"broker {one.get('name')}", one.get("node")) for one in declared.brokers),
        ]
        for who, node in placed:
            if node is not None and node not in nodes:
                yield f"{who}: node '{node}' is at no end of a link"


def _has_place(broker: Table) -> bool:
    return "node" in broker or "lat" in broker
