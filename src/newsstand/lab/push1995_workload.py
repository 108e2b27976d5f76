"""The workload of push1995 made where it is simulated, without tables between."""

from __future__ import annotations

import numpy as np

from newsstand.lab.push_cache_demand import NO_NODE, PushDemand, Sites, Versions
from newsstand.planning.backbone_waxman import cities
from newsstand.planning.geography import Places
from newsstand.workload import push1995_world as made
from newsstand.workload.push1995 import PushSettings
from newsstand.workload.push1995_visits import audience, draw, units


def demand_made(settings: PushSettings) -> PushDemand:
    """What reading the trace that is generated with these settings would bring, near the same cities."""
    world = made.populated(settings, cities())
    blocks = units(settings)
    drawn = [
        draw(settings, audience(settings, world, int(server)), unit, int(count))
        for unit, (server, count) in enumerate(zip(blocks.server, blocks.requests, strict=True))
    ]
    time, subnet, page = (
        np.concatenate([getattr(one, name) for one in drawn]) for name in ("time", "subnet", "page")
    )
    server = np.repeat(blocks.server, blocks.requests)
    order = np.lexsort((page, subnet, server, time))
    pages = made.catalogue(settings)
    return PushDemand(
        time[order],
        server[order],
        subnet[order],
        page[order],
        Versions.of(pages.page, pages.size, pages.modified),
        _sites(world.subnets),
        _sites(world.servers),
    )


def _sites(sites: made.Sites) -> Sites:
    return Sites(Places(sites.latitudes, sites.longitudes), np.full(len(sites.names), NO_NODE, np.int32))
