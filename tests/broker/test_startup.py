"""Brokers that the cluster or the coordinator rejects stop with one line."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest
from support.broker.calls import login, subscribe
from support.broker.press import ADMIN, Press
from support.broker.process import NEWSSTAND, SECRET, Process, start_coordinator, wait_ready
from support.waiting import eventually

from newsstand.auth.credentials import broker_credential

OWN = broker_credential(SECRET, "refused")


class Launcher:
    """Starts processes over one press, in one folder."""

    def __init__(self, folder: Path, press: Press, stack: ExitStack) -> None:
        self._folder = folder
        self._press = press
        self._stack = stack

    def broker(self, token: str, *more: object, as_typed: bool = False) -> Process:
        command = ("broker", "--name", "refused", "--cluster", self._press.url, "--data", self._folder / "broker")
        env = {"NEWSSTAND_BROKER_TOKEN": token}
        return self._killed_later(Process(NEWSSTAND, *command, "--port", 0, *more, env=env, as_typed=as_typed))

    def coordinator(self, like: Process | None = None) -> Process:
        """Start a coordinator, perhaps at the port of an earlier one."""
        port = int(like.url.rpartition(":")[2]) if like else 0
        return self._killed_later(start_coordinator(self._folder / "coordinator", port))

    def _killed_later(self, process: Process) -> Process:
        self._stack.callback(process.kill)
        return process


@pytest.fixture
def launch(new_press: Press, tmp_path: Path) -> Iterator[Launcher]:
    with ExitStack() as stack:
        yield Launcher(tmp_path, new_press, stack)


def test_broker_stops_when_the_cluster_rejects_its_token(launch: Launcher) -> None:
    broker = launch.broker("guessed", as_typed=True)
    assert broker.ended() == 2
    assert broker.said[-1] == (
        "newsstand: the data cluster does not accept the broker's token: the token is not known"
    )
    assert not any("Traceback" in line for line in broker.said)


def test_broker_leaves_no_folder_when_its_port_is_used(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        command = ("broker", "--name", "edge", "--cluster", "http://127.0.0.1:1", "--data", tmp_path / "data")
        broker = Process(NEWSSTAND, *command, "--port", port, env={"NEWSSTAND_BROKER_TOKEN": OWN})
        assert broker.ended() == 2
    assert broker.said == [f"newsstand: cannot listen on 127.0.0.1 port {port}: Address already in use"]
    assert not (tmp_path / "data").exists()


def test_broker_stops_when_its_credential_is_of_another_platform(launch: Launcher) -> None:
    foreign = broker_credential("a secret of another platform, also long", "refused")
    broker = launch.broker(foreign, "--coordinator", launch.coordinator().url)
    assert broker.ended() == 2
    assert broker.said[-1] in (
        "newsstand: the coordinator does not accept the broker: the token is not known",
        "newsstand: the data cluster does not accept the broker's token: the token is not known",
    )


@pytest.mark.parametrize(
    ("token", "more", "complaint"),
    [
        (ADMIN, (), "a broker with a coordinator needs its credential as --token-file FILE"),
        (broker_credential(SECRET, "north"), (), "is that of broker 'north', and this is broker 'refused'"),
        (OWN, ("--secret-file", "platform.secret"), "secret: only for a broker without a coordinator"),
    ],
)
def test_broker_with_a_coordinator_needs_only_its_credential(
    launch: Launcher, token: str, more: tuple[str, ...], complaint: str
) -> None:
    broker = launch.broker(token, "--coordinator", "http://127.0.0.1:1", *more)
    assert broker.ended() == 2
    assert complaint in broker.said[-1]


def test_broker_waits_for_its_keys_until_accepted(launch: Launcher) -> None:
    coordinator = launch.coordinator()
    url = coordinator.url
    coordinator.kill()
    broker = launch.broker(OWN, "--coordinator", url)
    keyless = ["no keys from the coordinator yet"]
    eventually(lambda: httpx.get(f"{broker.url}/readyz", verify=False).json().get("lacking") == keyless, 30)
    who = {"name": "ann", "password": "correct horse battery"}
    assert httpx.post(f"{broker.url}/login", json=who, verify=False).status_code == 503
    assert (
        httpx.get(f"{broker.url}/subscriptions", headers={"Authorization": "Bearer x"}, verify=False).status_code
        == 503
    )
    assert any("the broker goes on without it" in line for line in broker.said)
    launch.coordinator(coordinator)
    wait_ready(broker.url)
    assert broker.stop() == 0


def test_accepted_broker_starts_without_the_coordinator(launch: Launcher) -> None:
    coordinator = launch.coordinator()
    more = ("--coordinator", coordinator.url)
    broker = launch.broker(OWN, *more)
    wait_ready(broker.url)
    with closing(login(broker.url, "ann")) as ann:
        coordinator.kill()
        broker.kill()
        broker = launch.broker(OWN, *more)
        wait_ready(broker.url)
        headers = {"Authorization": ann.headers["Authorization"]}
        assert httpx.get(f"{broker.url}/subscriptions", headers=headers, verify=False).status_code == 200
    assert broker.stop() == 0


def test_subscribers_kept_when_the_coordinator_lost_its_store(launch: Launcher, tmp_path: Path) -> None:
    coordinator = launch.coordinator()
    broker = launch.broker(OWN, "--coordinator", coordinator.url)
    wait_ready(broker.url)
    with closing(login(broker.url, "ann")) as ann:
        subscribe(ann, kind="fire")
        coordinator.kill()
        shutil.rmtree(tmp_path / "coordinator")
        launch.coordinator(coordinator)
        eventually(lambda: any("another store" in line for line in broker.said), 20)
        subscribe(ann, kind="flood")  # a change that it must not get
        time.sleep(1.5)
        assert len(ann.get("/subscriptions").json()["subscriptions"]) == 2
    assert broker.stop() == 0
