"""`newsstand simulate` and `newsstand policies`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from newsstand.caching import POLICIES
from newsstand.caching.pages.policy import PolicyFile
from newsstand.cli.options import Engine, Json, SparkOptions, Strict
from newsstand.cli.terminal import advancing, print_table, say
from newsstand.errors import BadOption

PolicyFiles = Annotated[
    list[Path] | None,
    Option(
        "--policy-file",
        metavar="FILE",
        help="A Python file that registers policies of your own. Its code runs here and on the workers, with your "
        "rights: give only files that you trust.",
    ),
]


def simulate(
    spark: SparkOptions,
    trace: Annotated[Path, Argument(help="A trace folder, an access log, or an oracleGeneral file.")],
    policy: Annotated[
        list[str] | None, "P ...", "One or more policies; default all. `newsstand policies` lists them."
    ] = None,
    capacity: Annotated[
        list[str] | None,
        "F ...",
        "Cache sizes as fractions of the bytes requested at a proxy; default 0.01 0.05 0.1.",
    ] = None,
    cache_bytes: Annotated[
        list[int] | None,
        "N ...",
        "Cache sizes in bytes; each proxy has a cache of that size.",
    ] = None,
    beta: Annotated[list[float] | None, "B ...", "One or more betas of GD*; default 2."] = None,
    policy_file: PolicyFiles = None,
    one_proxy: Annotated[bool, "One cache for all proxies: in front of all clients of an access log."] = False,
    per_proxy: Annotated[bool, "Also print each proxy's cache size, requests and hits."] = False,
    hourly: Annotated[bool, "Also print every hour's counts."] = False,
    figure: Annotated[Path | None, "FILE", "Draw hit ratio over capacity (.svg, .png or .pdf)."] = None,
    source_format: Annotated[str, Option("--format", help="auto, trace, access-log or oracle-general.")] = "auto",
    strict: Strict = False,
    curve: Annotated[
        int | None,
        Option(
            "--curve",
            min=2,
            max=1000,
            metavar="N",
            help="Replay N capacities from 0.001 to 1. Of many pages a sample is replayed, and the error printed.",
        ),
    ] = None,
    sample: Annotated[
        float | None,
        "SHARE",
        "Replay this share of the pages, and print the error; 1: all. Default 1, and with --curve what is needed.",
    ] = None,
    engine: Engine = "auto",
    as_json: Json = False,
) -> None:
    """Replay a trace under many policies, capacities and betas in one pass.

    Example: newsstand simulate my-trace --policy gdstar sg2 sr --capacity 0.01 0.05 --json
    """
    from newsstand.lab.pages.sweep import curve_capacities, plan
    from newsstand.workload.trace.memory import fits_in_memory
    from newsstand.workload.trace.sources import COLUMN_READERS, format_of, is_small, read_columns, read_source

    if figure is not None:
        from newsstand.lab.reporting.figures import draw_capacities, require_drawable

        require_drawable(figure)
    files = [PolicyFile.read(path) for path in policy_file or ()]
    for file in files:
        file.load()
    names = list(POLICIES) if not policy or policy == ["all"] else list(dict.fromkeys(policy))
    if curve is not None and (capacity or cache_bytes):
        raise BadOption("--curve: chooses the sizes; leave out --capacity and --cache-bytes")
    sample = 1.0 if sample is None and curve is None else sample
    if sample != 1 and (per_proxy or hourly):
        raise BadOption("--per-proxy and --hourly count all pages: give --sample 1")
    capacities = curve_capacities(curve) if curve else capacity or ([] if cache_bytes else ["0.01", "0.05", "0.1"])
    capacities, sizes = list(dict.fromkeys(capacities)), list(dict.fromkeys(cache_bytes or ()))
    betas = list(dict.fromkeys(beta or [2.0]))
    wanted, job = plan(names, capacities, betas, files, cache_bytes=sizes, per_proxy=per_proxy, hourly=hourly)
    job = replace(job, sample=sample, one_proxy=one_proxy)
    source_format = format_of(trace, source_format)
    answers: list[dict[str, object]]
    notes: tuple[str, ...]
    fits = source_format in COLUMN_READERS and fits_in_memory(trace, source_format)
    if spark.is_chosen(engine, fits=fits):
        from newsstand.lab.pages.spark import simulate as replay

        with spark.session("simulate", "replaying", brief=is_small(trace)) as session:
            read = read_source(session, trace, source_format, strict=strict)
            answers, notes = replay(session, read, wanted, job), read.notes
    else:
        from newsstand.lab.pages.local import simulate as replay_columns

        with advancing("replaying") as progress:
            columns = read_columns(trace, source_format, strict=strict)
            answers, notes = replay_columns(columns, wanted, job, progress), columns.notes
    for note in notes:
        say(f"note: {note}")
    if figure is not None:
        draw_capacities(answers, figure, title=str(trace))
    if as_json:
        print(json.dumps(answers))
    else:
        show(answers)


RUN = ("policy", "capacity", "beta")
"""The titles of the columns that name a run."""
COUNTED = {
    "fetched": "fetched_pages",
    "pushed always": "pushed_pages_always",
    "pushed needed": "pushed_pages_needed",
}
"""The titles of the last columns, with the field of each."""


def show(answers: Sequence[Mapping[str, Any]]) -> None:
    """Print tables for people: of the runs, of each proxy and of each hour, where they are known."""
    runs = [
        (
            *_named(answer),
            f"{answer['cache_bytes']:,}",
            f"{answer['hit_ratio']:.4f}",
            *_error(answer),
            *_counted(answer),
        )
        for answer in answers
    ]
    titles = ("cache bytes", "hit ratio", *("error" for _ in _error(answers[0])), *COUNTED)
    print_table((*RUN, *titles), runs, left=["policy"])
    if share := answers[0].get("sample"):
        print(f"estimated from {share:.2%} of the pages; about 9 of 10 hit ratios are within the error")
    if "proxies" in answers[0]:
        proxies = [
            (*_named(answer), str(proxy["proxy"]), f"{size:,}", *_hits(proxy))
            for answer in answers
            for proxy, size in zip(answer["proxies"], answer["proxy_cache_bytes"], strict=True)
        ]
        print()
        print_table((*RUN, "proxy", "cache bytes", "requests", "hits", "hit ratio"), proxies, left=["policy"])
    if "hours" in answers[0]:
        hours = [
            (*_named(answer), str(hour["hour"]), *_hits(hour), *_counted(hour))
            for answer in answers
            for hour in answer["hours"]
        ]
        print()
        print_table((*RUN, "hour", "requests", "hits", "hit ratio", *COUNTED), hours, left=["policy"])


def _named(answer: Mapping[str, Any]) -> tuple[str, str, str]:
    each = answer["bytes_per_proxy"]
    return answer["policy"], f"{answer['capacity']:g}" if each is None else f"{each:,} B", f"{answer['beta']:g}"


def _error(answer: Mapping[str, Any]) -> tuple[str, ...]:
    return (f"±{answer['hit_ratio_error']:.4f}",) if "hit_ratio_error" in answer else ()


def _hits(counts: Mapping[str, int]) -> tuple[str, str, str]:
    requests, hits = counts["requests"], counts["hits"]
    return f"{requests:,}", f"{hits:,}", f"{hits / requests:.4f}" if requests else "-"


def _counted(counts: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(f"{counts[name]:,}" for name in COUNTED.values())


def policies(policy_file: PolicyFiles = None, as_json: Json = False) -> None:
    """List the page policies by name.

    Example: newsstand policies
    """
    for path in policy_file or ():
        PolicyFile.read(path).load()
    if as_json:
        facts = [
            {"name": one.name, "title": one.title, "uses_push": one.uses_push, "offline": one.offline}
            for one in POLICIES.values()
        ]
        print(json.dumps(facts))
    else:
        for one in POLICIES.values():
            print(f"{one.name:12} {one.title}")
