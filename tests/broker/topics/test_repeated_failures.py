"""Five real brokers: for a minute they are killed and restarted, and topics move, while clients publish."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest
from support.broker.topic_world import World, until, world
from websockets.exceptions import WebSocketException

NAMES = ["b1", "b2", "b3", "b4", "b5"]
SECONDS = 60.0
LEAST_ALIVE = 3


class Publisher(threading.Thread):
    """Publishes (number, 0), (number, 1) … at the brokers in turn, and records those acknowledged as stored."""

    def __init__(self, made: World, number: int, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self._made = made
        self._number = number
        self._rng = rng
        self._said = 0
        self.over = threading.Event()
        self.acknowledged: list[tuple[int, int]] = []

    def run(self) -> None:
        while not self.over.is_set():
            try:
                self._visit(self._rng.choice(NAMES))
            except (KeyError, AssertionError, OSError, httpx.HTTPError, WebSocketException):
                time.sleep(0.2)  # the broker is dead, or has just died

    def _visit(self, broker: str) -> None:
        with self._made.client(broker) as client:
            for _ in range(200):
                if self.over.wait(0.01):
                    return
                body = (self._number, self._said)
                self._said += 1
                answer = client.say(publish={"topic": "storms", "body": body})
                if client.last(answer, patience=5).get("stored"):
                    self.acknowledged.append(body)


def disturb(made: World, rng: random.Random) -> None:
    """Kill a broker, restart one, or move the topic."""
    what = rng.choice(["kill", "kill", "start", "place"])
    dead = [name for name in NAMES if name not in made.brokers]
    if what == "kill" and len(made.brokers) > LEAST_ALIVE:
        made.kill(rng.choice(sorted(made.brokers)))
    elif what == "start" and dead:
        made.start(rng.choice(dead), ready=False)
    elif what == "place":
        made.place(storms=sorted(rng.sample(NAMES, rng.choice([1, 2]))))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_acknowledged_publications_survive_random_failures(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with world(tmp_path, NAMES, degree=3) as made:
        made.placed(storms=["b2", "b4"])
        publishers = [Publisher(made, number, random.Random(f"{seed} {number}")) for number in range(3)]
        for one in publishers:
            one.start()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            disturb(made, rng)
            time.sleep(rng.uniform(0.5, 6))
        for one in publishers:
            one.over.set()
            one.join(30)
        for name in NAMES:
            if name not in made.brokers:
                made.start(name)
        made.until_linked()
        until(lambda: made.overlay()["settled"], "topics are where they are wanted", 90)
        until(lambda: not any(made.metric(name, "topic_outbox") for name in NAMES), "all is stored", 90)
        acknowledged = {body for one in publishers for body in one.acknowledged}
        assert len(acknowledged) > 500
        for name in NAMES:
            with made.client(name) as client:
                found = Counter(tuple(body) for body in client.past("topic = 'storms'"))  # type: ignore[arg-type]
            assert acknowledged <= set(found)
            assert max(found.values()) == 1
