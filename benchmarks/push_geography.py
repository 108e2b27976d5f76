"""What a world for push-caching costs: making it, hops, miles and clusters (Gwertzman and Seltzer 1995).

    .venv/bin/python benchmarks/push_geography.py --nodes 2000 --subnets 50000 --servers 200

The times are CPU seconds, without those of compiling. Beside them stands what the arrays take; a matrix of hops
between all subnets and all nodes is what is spared by keeping hops between nodes only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from newsstand.geo.backbone import Backbone, Hosts, Internet, hosts_by_weight
from newsstand.geo.backbone_sources import BETA, generated_backbone
from newsstand.push_caching.clusters import cluster_requests
from newsstand.push_caching.strategies import STRATEGIES, nearness

Made = TypeVar("Made")
MEGABYTE = 1e6


def timed(what: str, make: Callable[[], Made]) -> Made:
    begun = time.process_time()
    made = make()
    print(f"{what:<52}{time.process_time() - begun:9.3f} s")
    return made


def compile_all() -> None:
    backbone = generated_backbone(5, np.random.default_rng(1))
    hosts = hosts_by_weight(backbone, 3, np.random.default_rng(1))
    internet = Internet(backbone, hosts, hosts)
    for strategy in STRATEGIES:
        cluster_requests({0: 1}, [1, 2], nearness(strategy, internet, np.random.default_rng(1)))


def megabytes(backbone: Backbone, *hosts: Hosts) -> None:
    """What is kept, and what a full matrix would take."""
    subnets = sum(one.nodes.nbytes + one.places.vectors.nbytes + 2 * one.places.latitudes.nbytes for one in hosts)
    full = sum(len(one) for one in hosts) * len(backbone) * backbone.hops.itemsize
    for what, size in (
        ("hops between nodes", backbone.hops.nbytes),
        ("nodes, places and vectors of subnets and servers", subnets),
        ("hops between all subnets and nodes, not made", full),
    ):
        print(f"{what:<52}{size / MEGABYTE:9.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--subnets", type=int, default=50_000)
    parser.add_argument("--servers", type=int, default=200)
    parser.add_argument("--beta", type=float, default=BETA)
    parser.add_argument("--country", action="append", help="two letters, several times for several; default all")
    asked = parser.parse_args()
    compile_all()
    rng = np.random.default_rng(1)
    backbone = timed(
        f"a backbone of {asked.nodes:,} nodes",
        lambda: generated_backbone(asked.nodes, rng, beta=asked.beta, countries=asked.country),
    )
    timed(f"hops between them, up to {backbone.hops.max()}", lambda: Backbone.hops.func(backbone))
    subnets = timed(f"{asked.subnets:,} subnets", lambda: hosts_by_weight(backbone, asked.subnets, rng))
    servers = hosts_by_weight(backbone, asked.servers, rng)
    internet = Internet(backbone, subnets, servers)
    one, other = rng.integers(asked.subnets, size=10**6), rng.integers(asked.servers, size=10**6)
    hops = timed("a million hops", lambda: internet.hops(one, other))
    miles = timed("a million miles", lambda: internet.miles(one, other))
    requests = dict(enumerate(rng.integers(1, 100, asked.subnets).tolist()))
    for strategy in STRATEGIES:
        way = nearness(strategy, internet, rng)
        timed(
            f"clusters of all subnets at {asked.servers} servers, {strategy}",
            lambda way=way: cluster_requests(requests, range(asked.servers), way),  # type: ignore[misc]
        )
    megabytes(backbone, subnets, servers)
    print(f"correlation of hops and miles {np.corrcoef(hops, miles)[0, 1]:.2f}")


if __name__ == "__main__":
    main()
