"""`newsstand push-cache`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from newsstand.cli.number_ranges import is_list, numbers, option_of, require_few, whole_numbers
from newsstand.cli.options import Conf, Json, Master, RangeFigure, make_folder
from newsstand.cli.progress import progress, say
from newsstand.cli.push_cache_report import answer_of, show
from newsstand.errors import BadOption

if TYPE_CHECKING:
    from newsstand.lab.push_cache_runs import Network
    from newsstand.lab.push_cache_setting import PushCacheSetting

MOST_NODES = 10_000
WHOLE = ("pages", "servers", "slots", "seed")
NAMED = ("caching", "lookup", "client_cache")
PARAMETERS = ("threshold", "pages", "servers", *NAMED, "slots", "cap", "seed")
"""As the fields of a setting, in their order."""


def push_cache(
    context: typer.Context,
    trace: Annotated[Path, typer.Argument(help="The folder of a push trace.")],
    threshold: Annotated[
        str, typer.Option(metavar="LOAD", help="A server pushes when its load is above (push-threshold).")
    ] = "100",
    pages: Annotated[
        str, typer.Option(metavar="N", help="It pushes so many of its most popular pages (pages-to-push).")
    ] = "10",
    servers: Annotated[str, typer.Option(metavar="N", help="Available push-caches (server-number).")] = "20",
    caching: Annotated[
        str,
        typer.Option(metavar="NAME", help="The push-cache nearest to clients: by hops, miles or random."),
    ] = "hops",
    lookup: Annotated[
        str,
        typer.Option(metavar="NAME", help="Whether one is nearer to a client: by hops, miles or random."),
    ] = "hops",
    client_cache: Annotated[
        str, typer.Option(metavar="NAME", help="What a subnet keeps of what it gets: none or infinite.")
    ] = "none",
    slots: Annotated[str, typer.Option(metavar="N", help="Pages that a push-cache holds.")] = "1000",
    cap: Annotated[
        str, typer.Option(metavar="SHARE", help="The share of them that may be of any one server.")
    ] = "0.25",
    seed: Annotated[
        str, typer.Option(metavar="N", help="Another seed, other places of push-caches and random choices.")
    ] = "1",
    network: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="GraphML with places, or a folder with nodes.csv and edges.csv; default generated.",
        ),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(metavar="N", help="Nodes of a generated network; default 200.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep what was simulated in this folder, and do not simulate it again."),
    ] = None,
    figure: RangeFigure = None,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Simulate servers that push popular pages to push-caches, near where they are wanted.

    Numbers may be a list, 5,10,20, or a range with both ends, 5:30:5, and names a list, hops,miles; every
    combination is simulated, a Spark task each, and compared with the same without pushing.

    Example: newsstand push-cache my-trace --threshold 100 --pages 10 --servers 20 --caching hops --lookup hops

    Example: newsstand push-cache my-trace --servers 5:40:5 --caching hops,miles,random --figure servers.svg
    """
    from newsstand.lab.push_cache_reading import demand_of
    from newsstand.lab.push_cache_runs import PushCacheRuns
    from newsstand.spark import open_session
    from newsstand.workload.push1995_trace import check_push_trace, read_push_trace
    from newsstand.workload.sources import is_small

    given = {
        name: str(context.params[name]) for name in context.params if name in PARAMETERS
    }  # as they were given
    asked = Ranges.of(given)
    settings = asked.settings  # refuses what cannot be simulated, before anything is read
    used = _network(network, nodes)
    if figure is not None:
        from newsstand.lab.push_cache_figure import require_drawable_ranges

        require_drawable_ranges(figure, asked.ranged)
    if keep is not None:
        make_folder(keep, "--keep")
    session = open_session(master, conf or (), "newsstand push-cache", brief=is_small(trace))
    with session as spark, progress(spark, "simulating"):
        read = read_push_trace(spark, trace)
        check_push_trace(read)
        answers = PushCacheRuns(spark, demand_of(read), used, keep).compared(settings, say)
    if figure is not None:
        from newsstand.lab.push_cache_figure import draw_push_caches

        draw_push_caches(answers, asked.ranged, figure)
    if as_json:
        told = [answer_of(answer) for answer in answers]
        print(json.dumps(told if asked.is_list else told[0]))
    else:
        show(answers, asked.varied)


@dataclass(frozen=True)
class Ranges:
    """What was asked for, each parameter with all its values."""

    values: Mapping[str, tuple[int, ...] | tuple[float, ...] | tuple[str, ...]]
    varied: tuple[str, ...]
    """Parameters that were written as a list, in the order given."""

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> Ranges:
        """Read all options."""
        values = {name: _values(name, texts[name]) for name in PARAMETERS}
        found = cls(values, tuple(name for name, text in texts.items() if is_list(text)))
        require_few(values.values(), found.varied, "simulations")
        return found

    @property
    def ranged(self) -> tuple[str, ...]:
        """Those of numbers."""
        return tuple(name for name in self.varied if name not in NAMED)

    @property
    def is_list(self) -> bool:
        """Whether more than one answer was asked for."""
        return bool(self.varied)

    @property
    def settings(self) -> list[PushCacheSetting]:
        """All combinations."""
        from newsstand.lab.push_cache_setting import PushCacheSetting

        return [PushCacheSetting(*one) for one in itertools.product(*self.values.values())]  # type: ignore[arg-type]


def _values(name: str, text: str) -> tuple[int, ...] | tuple[float, ...] | tuple[str, ...]:
    if name in NAMED:
        return tuple(dict.fromkeys(text.split(",")))
    read = whole_numbers if name in WHOLE else numbers
    return read(option_of(name), text)


def _network(file: Path | None, nodes: int | None) -> Network:
    from newsstand.lab.push_cache_runs import Network
    from newsstand.planning.backbone_files import read_backbone

    if file is not None:
        if nodes is not None:
            raise BadOption("--nodes: a network that is given with --network has its own")
        return Network(read_backbone(file))
    if nodes is None:
        return Network()
    if not 1 <= nodes <= MOST_NODES:
        raise BadOption(f"--nodes {nodes}: must be in 1 … {MOST_NODES:,}")
    return Network(nodes=nodes)
