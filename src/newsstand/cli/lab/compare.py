"""`newsstand compare`: a week of news under every page policy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from newsstand.caching import POLICIES
from newsstand.cli.lab.simulate import show
from newsstand.cli.options import Engine, Json, SparkOptions, make_folder
from newsstand.cli.terminal import advancing, say

if TYPE_CHECKING:
    from newsstand.lab.pages.replay import PolicyRun, ReplayJob
    from newsstand.workload.chen2003.publishing import News

BYTES_A_REQUEST = 1_000
"""Memory for a request of the trace at most: drawn, sorted, and replayed."""


def compare(
    spark: SparkOptions,
    out: Annotated[Path, "DIR", "Where the figure goes."] = Path("compare-out"),
    requests: Annotated[int, "Requests of the small news trace."] = 60_000,
    seed: Annotated[int, "Same seed, same result."] = 1,
    engine: Engine = "auto",
    as_json: Json = False,
) -> None:
    """Generate a small news trace, replay it under every policy, and summarize the results.

    Example: newsstand compare
    """
    from newsstand.lab.pages.sweep import plan, summary
    from newsstand.lab.reporting.figures import draw_capacities
    from newsstand.workload.chen2003.publishing import News
    from newsstand.workload.trace.memory import SHARE, available_bytes

    news = News(requests=requests, proxies=40, pages=10_000, seed=seed)
    wanted, job = plan(list(POLICIES), ["0.01", "0.05", "0.1"], [2.0])
    on_spark = spark.is_chosen(engine, fits=requests * BYTES_A_REQUEST <= SHARE * available_bytes())
    make_folder(out)
    say(f"A week of news: {news.pages:,} pages, {news.requests:,} requests at {news.proxies} proxies …")
    answers = _on_spark(spark, news, wanted, job, out) if on_spark else _here(news, wanted, job)
    figure = out / "hit-ratios.png"
    draw_capacities(answers, figure, title="A week of news, hit ratio by policy")
    learned = summary(answers)
    if as_json:
        print(json.dumps({"answers": answers, "figure": str(figure), "learned": learned}))
        return
    show([answer for answer in answers if answer["capacity"] == 0.05])
    print()
    for sentence in learned:
        print(sentence)
    print(f"Figure: {figure}")


def _here(news: News, wanted: Sequence[PolicyRun], job: ReplayJob) -> list[dict[str, object]]:
    from newsstand.lab.pages.local import simulate
    from newsstand.workload.chen2003.requests import generate_columns

    trace = generate_columns(news)
    _say_replayed()
    with advancing("comparing") as progress:
        return simulate(trace, wanted, job, progress)


def _on_spark(
    spark: SparkOptions, news: News, wanted: Sequence[PolicyRun], job: ReplayJob, out: Path
) -> list[dict[str, object]]:
    from newsstand.lab.pages.spark import simulate
    from newsstand.workload.chen2003.generator import generate
    from newsstand.workload.trace.folder import read_trace

    with spark.session("compare", "comparing") as session, TemporaryDirectory(prefix=".trace-", dir=out) as work:
        folder = Path(work) / "news"
        generate(session, news, folder)
        _say_replayed()
        return simulate(session, read_trace(session, folder), wanted, job)


def _say_replayed() -> None:
    say(f"… replayed under {len(POLICIES)} policies at three cache sizes.")
