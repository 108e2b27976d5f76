"""Real brokers in a line that are killed and restarted, and topics that move while clients publish."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.broker.topic_world import Client, World, until, world

WEST, MIDDLE, EAST = "b1", "b2", "b3"


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("overlay"), (WEST, MIDDLE, EAST)) as made:
        yield made


@contextmanager
def publishing(client: Client, topic: str) -> Iterator[list[int]]:
    """Publish 0, 1, 2 … in the background; yield those that were acknowledged as stored."""
    acknowledged: list[int] = []
    over = threading.Event()

    def publish() -> None:
        number = 0
        while not over.is_set():
            if client.publish(topic, number)["stored"]:
                acknowledged.append(number)
            number += 1
            over.wait(0.01)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield acknowledged
    finally:
        over.set()
        thread.join(30)


def numbers(bodies: list[object]) -> list[int]:
    return [body for body in bodies if isinstance(body, int)]


def known(client: Client, topic: str) -> None:
    until(lambda: client.publish(topic, "is it stored?")["stored"], f"{topic} has a storage")


def test_overlay_survives_loss_of_a_middle_broker(line: World) -> None:
    line.placed(storms=[EAST])
    with line.client(WEST) as ann, line.client(EAST) as eve:
        eve.subscribe("topic = 'storms'")
        known(ann, "storms")
        ann.until_heard(eve, "storms")
        with publishing(ann, "storms") as acknowledged:
            until(lambda: len(acknowledged) > 20, "some were published")
            line.kill(MIDDLE)
            died = len(acknowledged)
            line.until_linked()
            assert line.overlay()["links"] == [[WEST, EAST]]
            ann.until_heard(eve, "storms")
            mended = len(acknowledged)
            until(lambda: len(acknowledged) > mended + 20, "some more were published")
        assert mended > died, "publishing went on while the tree was broken"
        until(lambda: acknowledged[-1] in eve.bodies("storms"), "the last one is delivered")
        until(lambda: line.metric(WEST, "topic_outbox") == 0, "the storage has everything")
        delivered = numbers(eve.bodies("storms"))
        assert Counter(delivered) == dict.fromkeys(acknowledged, 1)
        assert sorted(numbers(eve.past("topic = 'storms'"))) == acknowledged
    line.start(MIDDLE)
    line.until_linked()


def test_storage_catches_up_after_being_killed(line: World) -> None:
    line.placed(fires=[WEST, EAST])
    with line.client(WEST) as ann:
        known(ann, "fires")
        first = [ann.publish("fires", number)["done"] and number for number in range(50)]
        until(lambda: line.metric(EAST, "topic_stored_total") >= 50, "both storages have the first")
        line.kill(EAST)
        line.until_linked()
        rest = [ann.publish("fires", number)["done"] and number for number in range(50, 120)]
        until(lambda: line.metric(WEST, "topic_outbox") == 0, "the other storage has the rest")
        line.start(EAST)
        line.until_linked()
        until(lambda: line.overlay()["settled"], "the storage has caught up")
    line.kill(WEST)
    line.until_linked()
    with line.client(EAST) as eve:
        assert numbers(eve.past("topic = 'fires'")) == first + rest
    line.start(WEST)
    line.until_linked()


def test_storages_merge_after_a_partition(line: World) -> None:
    line.placed(quakes=[WEST, EAST])
    with line.client(WEST) as ann, line.client(EAST) as eve:
        known(ann, "quakes")
        known(eve, "quakes")
        line.kill(MIDDLE)
        stored = [
            (client.publish("quakes", number)["stored"], number) for number, client in enumerate([ann, eve] * 20)
        ]
        assert all(is_stored for is_stored, _ in stored)
        line.until_linked()
        for client in (ann, eve):
            until(lambda client=client: sorted(numbers(client.past("topic = 'quakes'"))) == list(range(40)), "all")
    line.start(MIDDLE)
    line.until_linked()


def test_topic_moves_while_clients_publish(line: World) -> None:
    line.placed(floods=[WEST])
    with line.client(MIDDLE) as bob, line.client(EAST) as eve:
        known(bob, "floods")
        with publishing(bob, "floods") as acknowledged:
            until(lambda: len(acknowledged) > 50, "there is something to move")
            line.place(floods=[EAST])
            until(lambda: line.overlay()["settled"], "the topic has moved")
            assert line.overlay()["storages"]["floods"] == {"wanted": [EAST], "complete": [EAST], "leaving": []}
            moved = len(acknowledged)
            until(lambda: len(acknowledged) > moved + 50, "publishing goes on")
        until(lambda: line.metric(MIDDLE, "topic_outbox") == 0, "the storage has everything")
        assert sorted(numbers(eve.past("topic = 'floods'"))) == acknowledged
        until(lambda: line.metric(WEST, "topics_stored") == 0, "the old storage has dropped its copy")
    line.kill(EAST)
    line.until_linked()
    with line.client(WEST) as ann:
        page = ann.http.get("/topics", params={"filter": "topic = 'floods'"}).json()
        assert (page["messages"], page["unavailable"]) == ([], ["floods"])
    line.start(EAST)
    line.until_linked()
    line.placed()


def test_publications_wait_for_an_absent_storage(line: World) -> None:
    line.placed(hail=[EAST])
    with line.client(WEST) as ann:
        known(ann, "hail")
        line.kill(EAST)
        line.until_linked()
        waiting = [ann.publish("hail", number) for number in range(10)]
        assert all(one["stored"] for one in waiting)
        line.kill(WEST)
    line.start(WEST)
    line.start(EAST)
    line.until_linked()
    until(lambda: line.metric(WEST, "topic_outbox") == 0, "the storage has everything")
    until(lambda: line.overlay()["settled"], "the storage has caught up")
    with line.client(MIDDLE) as bob:
        assert numbers(bob.past("topic = 'hail'")) == list(range(10))
