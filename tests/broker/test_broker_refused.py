"""A broker that is none of its cluster's or coordinator's says so in one line, and ends."""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from broker_process import NEWSSTAND, SECRET, Process, start_coordinator, wait_ready
from press import ADMIN, Press
from test_broker_live import login, subscribe

from newsstand.serving.credentials import broker_credential

OWN = broker_credential(SECRET, "refused")


def started(folder: Path, press: Press, token: str, *more: object) -> Process:
    env = {"NEWSSTAND_BROKER_TOKEN": token}
    command = ("broker", "--name", "refused", "--cluster", press.url, "--data", folder, "--port", 0)
    return Process(NEWSSTAND, *command, *more, env=env)


def test_a_token_that_the_cluster_does_not_know_ends_the_broker(press: Press, tmp_path: Path) -> None:
    broker = started(tmp_path, press, "guessed")
    assert broker.ended() == 2
    assert broker.said[-1] == (
        "newsstand: the data cluster does not accept the broker's token: the token is not known"
    )
    assert not any("Traceback" in line for line in broker.said)


def test_a_credential_of_another_platform_ends_the_broker(press: Press, tmp_path: Path) -> None:
    coordinator = start_coordinator(tmp_path / "coordinator")
    try:
        foreign = broker_credential("a secret of another platform, also long", "refused")
        broker = started(tmp_path / "broker", press, foreign, "--coordinator", coordinator.url)
        assert broker.ended() == 2
        assert broker.said[-1] in (
            "newsstand: the coordinator does not accept the broker: the token is not known",
            "newsstand: the data cluster does not accept the broker's token: the token is not known",
        )
    finally:
        coordinator.kill()


@pytest.mark.parametrize(
    ("token", "more", "complaint"),
    [
        (ADMIN, (), "a broker with a coordinator needs its credential as --token-file FILE"),
        (broker_credential(SECRET, "north"), (), "is that of broker 'north', and this is broker 'refused'"),
        (OWN, ("--secret-file", "platform.secret"), "secret: is for a broker without a coordinator"),
    ],
)
def test_a_broker_with_a_coordinator_needs_its_own_credential_alone(
    press: Press, tmp_path: Path, token: str, more: tuple[str, ...], complaint: str
) -> None:
    broker = started(tmp_path, press, token, "--coordinator", "http://127.0.0.1:1", *more)
    assert broker.ended() == 2
    assert complaint in broker.said[-1]


def test_a_broker_that_was_never_accepted_waits_for_its_keys(press: Press, tmp_path: Path) -> None:
    coordinator = start_coordinator(tmp_path / "coordinator")
    url = coordinator.url
    coordinator.kill()
    broker = started(tmp_path / "broker", press, OWN, "--coordinator", url)
    try:
        until = time.monotonic() + 30
        keyless = ["the coordinator has not given this broker its keys yet"]
        while httpx.get(f"{broker.url}/readyz").json().get("lacking") != keyless:
            assert time.monotonic() < until, broker.said[-5:]
            time.sleep(0.05)
        who = {"name": "ann", "password": "correct horse battery"}
        assert httpx.post(f"{broker.url}/login", json=who).status_code == 503
        assert httpx.get(f"{broker.url}/subscriptions", headers={"Authorization": "Bearer x"}).status_code == 503
        assert any("the broker goes on without it" in line for line in broker.said)
        coordinator = start_coordinator(tmp_path / "coordinator", int(url.rpartition(":")[2]))
        wait_ready(broker.url)
    finally:
        coordinator.kill()
        assert broker.stop() == 0


def test_a_broker_that_was_accepted_once_starts_without_the_coordinator(press: Press, tmp_path: Path) -> None:
    coordinator = start_coordinator(tmp_path / "coordinator")
    more = ("--coordinator", coordinator.url)
    broker = started(tmp_path / "broker", press, OWN, *more)
    try:
        wait_ready(broker.url)
        with closing(login(broker.url, "ann")) as ann:
            coordinator.kill()
            broker.kill()
            broker = started(tmp_path / "broker", press, OWN, *more)
            wait_ready(broker.url)
            headers = {"Authorization": ann.headers["Authorization"]}
            assert httpx.get(f"{broker.url}/subscriptions", headers=headers).status_code == 200
    finally:
        coordinator.kill()
        assert broker.stop() == 0


def test_a_coordinator_that_has_lost_its_store_makes_nobody_be_forgotten(press: Press, tmp_path: Path) -> None:
    coordinator = start_coordinator(tmp_path / "coordinator")
    more = ("--coordinator", coordinator.url)
    broker = started(tmp_path / "broker", press, OWN, *more)
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
