"""A broker that is none of its cluster's or coordinator's says so in one line, and ends."""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from pathlib import Path

import httpx
from broker_process import NEWSSTAND, SECRET, Process, start_coordinator, wait_ready
from press import ADMIN, Press
from test_broker_live import login, subscribe


def started(folder: Path, press: Press, token: str, secret: str, *more: object) -> Process:
    env = {"NEWSSTAND_BROKER_SECRET": secret, "NEWSSTAND_BROKER_TOKEN": token}
    command = ("broker", "--name", "refused", "--cluster", press.url, "--data", folder, "--port", 0)
    return Process(NEWSSTAND, *command, *more, env=env)


def test_a_token_that_the_cluster_does_not_know_ends_the_broker(press: Press, tmp_path: Path) -> None:
    broker = started(tmp_path, press, "guessed", SECRET)
    assert broker.ended() == 2
    assert broker.said[-1] == (
        "newsstand: the data cluster does not accept the broker's token: the token is not known"
    )
    assert not any("Traceback" in line for line in broker.said)


def test_another_secret_than_the_coordinators_ends_the_broker(press: Press, tmp_path: Path) -> None:
    coordinator = start_coordinator(tmp_path / "coordinator")
    try:
        more = ("--coordinator", coordinator.url)
        broker = started(tmp_path / "broker", press, ADMIN, "a secret of another platform, also long", *more)
        assert broker.ended() == 2
        assert broker.said[-1] == "newsstand: the coordinator does not accept the broker: it has another secret"
    finally:
        coordinator.kill()


def test_a_coordinator_that_is_away_is_waited_for(press: Press, tmp_path: Path) -> None:
    coordinator = start_coordinator(tmp_path / "coordinator")
    url = coordinator.url
    coordinator.kill()
    broker = started(tmp_path / "broker", press, ADMIN, SECRET, "--coordinator", url)
    try:
        wait_ready(broker.url)
        assert httpx.get(f"{broker.url}/healthz").status_code == 200
        assert any("the broker goes on without it" in line for line in broker.said)
    finally:
        assert broker.stop() == 0


def test_a_coordinator_that_has_lost_its_store_makes_nobody_be_forgotten(press: Press, tmp_path: Path) -> None:
    coordinator = start_coordinator(tmp_path / "coordinator")
    more = ("--coordinator", coordinator.url)
    broker = started(tmp_path / "broker", press, ADMIN, SECRET, *more)
    try:
        wait_ready(broker.url)
        with closing(login(broker.url, "ann")) as ann:
            subscribe(ann, kind="fire")
            coordinator.kill()
            shutil.rmtree(tmp_path / "coordinator")
            coordinator = start_coordinator(tmp_path / "coordinator", int(coordinator.url.rpartition(":")[2]))
            until = time.monotonic() + 20
            while not any("another store" in line for line in broker.said):
                assert time.monotonic() < until, broker.said[-5:]
                time.sleep(0.1)
            subscribe(ann, kind="flood")  # a change that it must not be told of
            time.sleep(1.5)
            assert len(ann.get("/subscriptions").json()["subscriptions"]) == 2
        assert broker.stop() == 0
    finally:
        broker.kill()
        coordinator.kill()
