"""`newsstand compare`: a week of news under every policy, in about a minute."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from newsstand.caching import POLICIES
from newsstand.cli.options import Conf, Json, Master, make_folder
from newsstand.cli.progress import progress, say


def compare(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the figure goes.")] = Path(
        "compare-out"
    ),
    requests: Annotated[int, typer.Option(help="Requests of the small news trace.")] = 60_000,
    seed: Annotated[int, typer.Option(help="Same seed, same result.")] = 1,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Generate a small news trace, replay it under every policy, and say what it teaches.

    Example: newsstand compare
    """
    from newsstand.cli.simulate import show
    from newsstand.lab.figures import draw_capacities
    from newsstand.lab.lessons import lessons
    from newsstand.lab.simulate import plan, simulate
    from newsstand.spark import open_session
    from newsstand.workload.chen2003 import News
    from newsstand.workload.generate import generate
    from newsstand.workload.trace import read_trace

    news = News(requests=requests, proxies=40, pages=10_000, seed=seed)
    wanted, job = plan(list(POLICIES), ["0.01", "0.05", "0.1"], [2.0])
    make_folder(out)
    with (
        open_session(master, conf or (), "newsstand compare", brief=True) as spark,
        TemporaryDirectory(prefix=".trace-", dir=out) as work,
    ):
        folder = Path(work) / "news"
        say(f"A week of news: {news.pages:,} pages, {news.requests:,} requests at {news.proxies} proxies …")
        with progress(spark, "generating"):
            generate(spark, news, folder)
        say(f"… replayed under {len(POLICIES)} policies at three cache sizes.")
        with progress(spark, "replaying"):
            answers = simulate(spark, read_trace(spark, folder), wanted, job)
    figure = out / "hit-ratios.png"
    draw_capacities(answers, figure, title="A week of news, hit ratio by policy")
    learned = lessons(answers)
    if as_json:
        print(json.dumps({"answers": answers, "figure": str(figure), "learned": learned}))
        return
    show([answer for answer in answers if answer["capacity"] == 0.05])
    print()
    for sentence in learned:
        print(sentence)
    print(f"Figure: {figure}")
