"""What a result costs in one long cache: `python benchmarks/long_result_caches.py [policy ...]`.

One full cache of a given size, and twenty subscribers who come back in turn. Microseconds of CPU time for a result
that is put and for which room is made, and for a reader who gets ten results and acknowledges them; milliseconds
for a budget that shrinks to a tenth.
"""

from __future__ import annotations

import random
import sys
import time

from newsstand.caching import ResultCaches

SUBSCRIBERS, EACH = 20, 10
PUTS = 400


def measured(policy: str, objects: int) -> tuple[float, float, float]:
    """A put, a read, and a budget that shrinks."""
    chosen = random.Random(objects)
    caches = ResultCaches[str, None](policy, 250_000 * objects)
    for who in range(SUBSCRIBERS):
        caches.attach("floods", who, now=0, acked=0)
    position = 0

    def put() -> None:
        nonlocal position
        position += 1
        caches.put("floods", position, chosen.randrange(1_000, 500_001), None, position)
        caches.make_room(position)

    while caches.bytes < 0.99 * caches.budget:
        put()
    putting = reading = 0.0
    for turn in range(PUTS):
        begun = time.process_time()
        put()
        putting += time.process_time() - begun
        who = turn % SUBSCRIBERS
        begun = time.process_time()
        after = caches.acked("floods", who) or 0
        caches.get("floods", after, after + EACH)
        caches.touch("floods", position)
        caches.acknowledge("floods", who, after + EACH, position)
        reading += time.process_time() - begun
    begun = time.process_time()
    caches.resize(caches.budget // 10, position)
    shrinking = time.process_time() - begun
    return putting / PUTS * 1e6, reading / PUTS * 1e6, shrinking * 1e3


def main() -> None:
    print("| policy | objects | put, us | read, us | to a tenth, ms |")
    print("|---|---|---|---|---|")
    for policy in sys.argv[1:] or ["lsc", "lscz-any"]:
        for objects in (10, 200, 2_000, 20_000):
            put, read, shrink = measured(policy, objects)
            print(f"| {policy} | {objects:,} | {put:.1f} | {read:.1f} | {shrink:.1f} |", flush=True)


if __name__ == "__main__":
    main()
