"""Fifteen real brokers, three of which are killed in turn while clients publish and subscribe."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from support.broker.topic_world import Client, World, until, world

NAMES = [f"b{number:02}" for number in range(1, 16)]
PUBLISHERS, LISTENERS = ("b02", "b07", "b12"), ("b04", "b09", "b15")
KILLED = ("b05", "b10", "b13")
STORAGES = ["b03", "b10", "b14"]


class Publishing(threading.Thread):
    """Publishes (name, 0), (name, 1) … until it is stopped, and records those that were acknowledged."""

    def __init__(self, client: Client, who: str) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._who = who
        self.acknowledged: list[tuple[str, int]] = []
        self.over = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.over.wait(0.02):
            reply = self._client.publish("storms", [self._who, number], n=number)
            assert reply["stored"]
            self.acknowledged.append((self._who, number))
            number += 1


def pairs(bodies: list[object]) -> Counter[tuple[str, int]]:
    return Counter((body[0], body[1]) for body in bodies if isinstance(body, list))


def mend(made: World, clients: dict[str, Client]) -> float:
    """Wait until all brokers receive from all others again; return the time."""
    begun = time.monotonic()
    made.until_linked()
    for publisher in PUBLISHERS:
        for listener in LISTENERS:
            clients[publisher].until_heard(clients[listener], "storms")
    return time.monotonic() - begun


@pytest.mark.slow
def test_overlay_survives_loss_of_three_of_fifteen_brokers(tmp_path: Path) -> None:
    with world(tmp_path, NAMES, degree=3) as made:
        made.placed(storms=STORAGES)
        visits = {name: made.client(name) for name in (*PUBLISHERS, *LISTENERS)}
        clients = {name: visit.__enter__() for name, visit in visits.items()}
        for name in LISTENERS:
            clients[name].subscribe("topic = 'storms'")
        for name in PUBLISHERS:
            until(lambda name=name: clients[name].publish("storms")["stored"], "the storages are known")
        mend(made, clients)
        publishing = [Publishing(clients[name], name) for name in PUBLISHERS]
        for one in publishing:
            one.start()
        for name in KILLED:
            made.kill(name)
            print(f"{name} is killed; everybody hears everybody after {mend(made, clients):.1f} s")
        quiet = [len(one.acknowledged) for one in publishing]
        for one, so_far in zip(publishing, quiet, strict=True):
            until(lambda one=one, so_far=so_far: len(one.acknowledged) > so_far + 50, "more were published")
        for one in publishing:
            one.over.set()
            one.join(30)
        acknowledged = [pair for one in publishing for pair in one.acknowledged]
        after = {pair for one, n in zip(publishing, quiet, strict=True) for pair in one.acknowledged[n + 1 :]}
        until(lambda: not any(made.metric(name, "topic_outbox") for name in made.brokers), "all is stored")
        until(lambda: all(after <= set(pairs(clients[name].bodies("storms"))) for name in LISTENERS), "delivered")
        for name in LISTENERS:
            assert max(pairs(clients[name].bodies("storms")).values()) == 1
        until(lambda: made.overlay()["storages"]["storms"]["complete"] == ["b03", "b14"], "storages are whole")
        for name in (*LISTENERS, *PUBLISHERS):
            assert pairs(clients[name].past("topic = 'storms' and n >= 0")) == Counter(acknowledged)
        for name in KILLED:
            made.start(name)
        made.until_linked()
        until(lambda: made.overlay()["settled"], "the storage that was killed has caught up")
        with made.client("b10") as late:
            assert pairs(late.past("topic = 'storms' and n >= 0")) == Counter(acknowledged)
        for visit in visits.values():
            visit.__exit__(None, None, None)
