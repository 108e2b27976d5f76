"""`newsstand push-cache`: its answer for programs, and as a table for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument

from newsstand.cli.options import Engine, Json, RangeFigure, SparkOptions, make_folder
from newsstand.cli.several_values import Ranges, Reader, numbers, whole_numbers, words
from newsstand.cli.terminal import advancing, print_table, say
from newsstand.errors import BadOption

if TYPE_CHECKING:
    from newsstand.lab.push_caching.runs import BackboneSource, Comparison
    from newsstand.lab.push_caching.simulator import PushCacheSetting


LOADS = ("traffic", "primary_traffic", "primary_requests", "server_traffic")
CLIENTS = ("client_hits", "client_stale_hits", "client_bytes")


def answer_of(answer: Comparison) -> dict[str, object]:
    """Return the answer as JSON has it."""
    outcome = answer.outcome
    return {
        **asdict(answer.setting),
        **asdict(outcome),
        **{name: getattr(outcome, name) for name in LOADS},
        "without": {name: getattr(answer.without, name) for name in (*LOADS, *CLIENTS)},
        "uncached": {name: getattr(answer.uncached, name) for name in LOADS},
        "saved": {name: saved(answer, name) for name in LOADS},
    }


def saved(answer: Comparison, name: str) -> float:
    """Return the share of something that pushing saves; below 0 if it costs."""
    with_pushing, without = (float(getattr(one, name)) for one in (answer.outcome, answer.without))
    return 1 - with_pushing / without if without else 0.0


def show(answers: Sequence[Comparison], varied: Sequence[str]) -> None:
    """Print answers for people: common parameters, then a row for each."""
    in_common = (name for name in asdict(answers[0].setting) if name not in varied)
    print(", ".join(f"{name.replace('_', ' ')} {_text(answers[0], name)}" for name in in_common))
    cells = [_cells(answer) for answer in answers]
    rows = [
        (*(_text(answer, name) for name in varied), *row.values())
        for answer, row in zip(answers, cells, strict=True)
    ]
    print_table((*(name.replace("_", " ") for name in varied), *cells[0]), rows, left=())
    print("traffic is bytes times hops; primary is what servers send themselves; both compared with no pushing")


def _text(answer: Comparison, name: str) -> str:
    value = getattr(answer.setting, name)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cells(answer: Comparison) -> dict[str, str]:
    outcome = answer.outcome
    pushed = outcome.hits + outcome.checks
    return {
        "traffic": f"{outcome.traffic:.4g}",
        "saved": f"{saved(answer, 'traffic'):.1%}",
        "primary": f"{outcome.primary_traffic:.4g}",
        "primary saved": f"{saved(answer, 'primary_traffic'):.1%}",
        "from push-caches": f"{pushed / outcome.requests:.1%}",
        "stale": f"{outcome.stale_hits / outcome.requests:.2%}",
        "redirects": f"{outcome.redirects:,}",
        "invalid": f"{outcome.invalid:,}",
        "pushes": f"{outcome.pushes:,}",
        "active": f"{outcome.active} of {outcome.available}",
        "stored bytes": f"{outcome.stored_bytes:,}",
    }


MOST_NODES = 10_000
READERS: dict[str, Reader] = {
    "threshold": numbers,
    "pages": whole_numbers,
    "servers": whole_numbers,
    "caching": words,
    "lookup": words,
    "client_cache": words,
    "slots": whole_numbers,
    "cap": numbers,
    "seed": whole_numbers,
}
"""How the options are read that are fields of a setting."""


def push_cache(
    spark: SparkOptions,
    context: typer.Context,
    trace: Annotated[Path, Argument(help="The folder of a push trace.")],
    threshold: Annotated[str, "LOAD", "A server pushes when its load is above (push-threshold)."] = "100",
    pages: Annotated[str, "N", "Pages that it pushes, the most popular ones (pages-to-push)."] = "10",
    servers: Annotated[str, "N", "Available push-caches (server-number)."] = "20",
    caching: Annotated[str, "NAME", "The push-cache nearest to clients: by hops, miles or random."] = "hops",
    lookup: Annotated[str, "NAME", "Which copy is nearest to a client: by hops, miles or random."] = "hops",
    client_cache: Annotated[str, "NAME", "The cache of a subnet: none or infinite."] = "none",
    slots: Annotated[str, "N", "Pages that a push-cache holds."] = "1000",
    cap: Annotated[str, "SHARE", "The largest share of one server's pages in a push-cache."] = "0.25",
    seed: Annotated[str, "N", "The seed of the places of push-caches and of random choices."] = "1",
    network: Annotated[
        Path | None, "FILE", "GraphML with places, or a folder with nodes.csv and edges.csv; default generated."
    ] = None,
    nodes: Annotated[int | None, "N", "Nodes of a generated network; default 200."] = None,
    keep: Annotated[Path | None, "DIR", "Store simulations in this folder, and do not repeat them."] = None,
    figure: RangeFigure = None,
    engine: Engine = "auto",
    as_json: Json = False,
) -> None:
    """Simulate servers that push popular pages to push-caches, near where they are wanted.

    Numbers may be a list, 5,10,20, or a range with both ends, 5:30:5, and names a list, hops,miles; every
    combination is simulated and compared with the same without pushing.

    Example: newsstand push-cache my-trace --threshold 100 --pages 10 --servers 20 --caching hops --lookup hops

    Example: newsstand push-cache my-trace --servers 5:40:5 --caching hops,miles,random --figure servers.svg
    """
    from newsstand.lab.push_caching.simulator import PushCacheSetting
    from newsstand.workload.trace.memory import fits_in_memory

    ranges = Ranges.read(READERS, {name: str(text) for name, text in context.params.items() if name in READERS})
    # All settings are made before anything is read, so that mistakes show at once.
    settings = [PushCacheSetting(**values) for values in ranges.combinations]
    used = _network(network, nodes)
    if figure is not None:
        from newsstand.lab.push_caching.figure import require_drawable_ranges

        require_drawable_ranges(figure, ranges.ranged)
    if keep is not None:
        make_folder(keep, "--keep")
    fits = not trace.exists() or fits_in_memory(trace, "push-trace")
    on_spark = spark.is_chosen(engine, fits=fits)
    answers = _on_spark(spark, trace, settings, used, keep) if on_spark else _here(trace, settings, used, keep)
    if figure is not None:
        from newsstand.lab.push_caching.figure import draw_push_caches

        draw_push_caches(answers, ranges.ranged, figure)
    if as_json:
        reports = [answer_of(answer) for answer in answers]
        print(json.dumps(reports if ranges.varied else reports[0]))
    else:
        show(answers, ranges.varied)


def _here(
    trace: Path, settings: Sequence[PushCacheSetting], network: BackboneSource, keep: Path | None
) -> list[Comparison]:
    from newsstand.lab.push_caching.demand import demand_in_memory
    from newsstand.lab.push_caching.runs import PushCacheRuns
    from newsstand.workload.push1995.columns import read_push_columns

    with advancing("simulating") as progress:
        demand = demand_in_memory(read_push_columns(trace))
        return PushCacheRuns(demand, network, keep).compared(settings, say, progress)


def _on_spark(
    spark: SparkOptions,
    trace: Path,
    settings: Sequence[PushCacheSetting],
    network: BackboneSource,
    keep: Path | None,
) -> list[Comparison]:
    from newsstand.lab.push_caching.demand import demand_of
    from newsstand.lab.push_caching.runs import PushCacheRuns
    from newsstand.workload.push1995.trace import check_push_trace, read_push_trace
    from newsstand.workload.trace.sources import is_small

    with spark.session("push-cache", "simulating", brief=is_small(trace)) as session:
        read = read_push_trace(session, trace)
        check_push_trace(read)
        return PushCacheRuns(demand_of(read), network, keep, spark=session).compared(settings, say)


def _network(file: Path | None, nodes: int | None) -> BackboneSource:
    from newsstand.geo.backbone_sources import read_backbone
    from newsstand.lab.push_caching.runs import BackboneSource

    if file is not None:
        if nodes is not None:
            raise BadOption("--nodes: remove it; the network of --network has its own")
        return BackboneSource(read_backbone(file))
    if nodes is None:
        return BackboneSource()
    if not 1 <= nodes <= MOST_NODES:
        raise BadOption(f"--nodes {nodes}: must be from 1 to {MOST_NODES:,}")
    return BackboneSource(nodes=nodes)
