"""A newspaper has readers all over the world, and its pages move closer to them.

python play.py COORDINATOR CLUSTER TOKEN_FILE
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp

from newsstand.client import Client, ClientError, Publisher

PASSWORD = "a good password"
PAGES = {"front.html": 9_000, "sport/today.html": 6_000, "weather.html": 3_000, "letters.html": 2_000}
"""The size of each page in bytes."""
HOPS = {
    "berlin": {"berlin": 0, "origin": 3},
    "tokyo": {"tokyo": 0, "origin": 3},
    "sao-paulo": {"sao-paulo": 0, "origin": 2},
    "lisbon": {"lisbon": 0, "berlin": 2, "origin": 3},
}
"""The hops from the readers of each region to each source of pages."""
READS = 3
"""The number of times that a region reads each page in a round."""
MOST_ROUNDS = 40


class Reader:
    """A reader in a region, who records the source of each page."""

    def __init__(self, coordinator: str, region: str) -> None:
        self.region = region
        self.by = ""
        tracing = aiohttp.TraceConfig()
        tracing.on_request_end.append(self._note)
        self._http = aiohttp.ClientSession(trace_configs=[tracing])
        self.client = Client(
            coordinator, f"reader-{region}", PASSWORD, register=True, node=region, http=self._http
        )

    async def __aenter__(self) -> Reader:
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        await self._http.close()

    async def _note(self, _: object, __: object, ended: aiohttp.TraceRequestEndParams) -> None:
        self.by = ended.response.headers.get("X-Served-By", self.by)

    async def read(self, name: str) -> tuple[str, int]:
        """Read a page; return its source, and bytes times hops."""
        page = await self.client.named_page(name)
        kind = "origin" if self.by == "origin" else "pushed" if self.by == self.region else "peer"
        return kind, len(page.content) * HOPS[self.region][self.by]


def content(name: str, version: int) -> bytes:
    """Return the text of a version of a page."""
    return f"{name}, version {version}. ".encode().ljust(PAGES[name], b".")


async def origin_requests(http: aiohttp.ClientSession, cluster: str) -> int:
    """Return the number of requests for named pages at the cluster."""
    async with http.get(f"{cluster}/metrics") as answer:
        text = await answer.text()
    counts = re.findall(r"^newsstand_http_request_seconds_count\{(.*)\} (\S+)$", text, re.M)
    return sum(int(float(count)) for labels, count in counts if 'method="GET"' in labels and "/named/" in labels)


async def round_of_reading(readers: list[Reader]) -> tuple[Counter[str], int]:
    """Let each region read all pages a few times."""
    sources: Counter[str] = Counter()
    traffic = 0
    for _ in range(READS):
        for reader in readers:
            for name in PAGES:
                kind, cost = await reader.read(name)
                sources[kind] += 1
                traffic += cost
        await asyncio.sleep(0.3)
    return sources, traffic


async def until_changed(reader: Reader, name: str, version: int, began: float) -> float:
    """Read a page until its new version arrives; return the seconds."""
    while (await reader.client.named_page(name)).content != content(name, version):
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def play(coordinator: str, cluster: str, token: str) -> None:
    """Play all rounds."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        paper = await stack.enter_async_context(Publisher(cluster, token))
        readers = [await stack.enter_async_context(Reader(coordinator, region)) for region in HOPS]
        edition = int(time.time())
        for name in PAGES:
            await paper.put_page(name, content(name, edition), "text/html")
        print("round  from origin  pushed  from peer  bytes x hops  asked of origin", flush=True)
        for number in range(1, MOST_ROUNDS + 1):
            before = await origin_requests(http, cluster)
            sources, traffic = await round_of_reading(readers)
            asked = await origin_requests(http, cluster) - before
            print(
                f"{number:5}  {sources['origin']:11}  {sources['pushed']:6}  {sources['peer']:9}"
                f"  {traffic:12,}  {asked:15}",
                flush=True,
            )
            if not sources["origin"]:
                break
        began = time.monotonic()
        await paper.put_page("front.html", content("front.html", edition + 1), "text/html")
        took = await asyncio.gather(*(until_changed(one, "front.html", edition + 1, began) for one in readers))
        for reader, seconds in zip(readers, took, strict=True):
            print(f"the new front page is in {reader.region} after {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python play.py COORDINATOR CLUSTER TOKEN_FILE")
    try:
        asyncio.run(play(sys.argv[1], sys.argv[2], Path(sys.argv[3]).read_text().strip()))
    except* ClientError as errors:
        sys.exit(f"the play ends: {errors.exceptions[0]}")
