"""Writes `access.log` beside this file: half a day of a small news site that does not exist.

The hosts are those set aside for documentation (RFC 5737). Same seed, same bytes.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

LINES = 296
START = datetime(2024, 3, 5, 6, 0, tzinfo=UTC)
NETWORKS = ("192.0.2", "198.51.100", "203.0.113")
SECTIONS = ("city", "world", "sport", "culture", "weather")
BROKEN = (
    "server restarted, log continues",
    "198.51.100.77 - - [05/Mar/2024:09:1",
    '203.0.113.8 - - [31/Feb/2024:11:02:44 +0000] "GET / HTTP/1.1" 200 5120 "-" "-"',
    '192.0.2.19 - - "GET /sport/3.html HTTP/1.1" 200 8011 "-" "-"',
)


def main() -> None:
    """Write the log."""
    draw = random.Random(2003)
    sizes = {
        f"/{section}/{n}.html": int(draw.lognormvariate(9.357, 1.318)) for section in SECTIONS for n in range(16)
    }
    sizes["/"] = 5120
    pages = sorted(sizes, key=lambda page: (page != "/", draw.random()))
    weights = [1 / rank for rank in range(1, len(pages) + 1)]
    seconds = sorted(draw.uniform(0, 12 * 3600) for _ in range(LINES))
    lines = []
    for second in seconds:
        # Attention moves on: every hour the list of favourites, but for the front page, starts three pages later.
        shift = 3 * int(second // 3600)
        rank = draw.choices(range(len(pages)), weights)[0]
        page = pages[0] if rank == 0 else pages[1 + (rank - 1 + shift) % (len(pages) - 1)]
        host = f"{draw.choice(NETWORKS)}.{draw.randint(1, 250)}"
        time = (START + timedelta(seconds=int(second))).strftime("%d/%b/%Y:%H:%M:%S +0000")
        lines.append(f'{host} - - [{time}] {answer(draw, page, sizes[page])} "-" "Mozilla/5.0"')
    for place, broken in zip((40, 110, 190, 260), BROKEN, strict=True):
        lines.insert(place, broken)
    (Path(__file__).parent / "access.log").write_text("\n".join(lines) + "\n")


def answer(draw: random.Random, page: str, size: int) -> str:
    """Mostly the page; now and then what every log holds besides."""
    chance = draw.random()
    if chance < 0.03:
        return '"GET /favicon.ico HTTP/1.1" 404 162'
    if chance < 0.05:
        return '"POST /login HTTP/1.1" 303 -'
    if chance < 0.06:
        return '"GET /about.html HTTP/1.1" 304 -'
    if chance < 0.12:
        return f'"GET {page} HTTP/1.1" 304 -'
    return f'"GET {page} HTTP/1.1" 200 {size}'


if __name__ == "__main__":
    main()
