"""Accounts managed by `newsstand user`, at a standalone broker and at a coordinator with brokers."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest
from support.broker.calls import PASSWORD, login, sockets, subscribe
from support.broker.press import ADMIN, APP, Press
from support.broker.process import SECRET, Process, as_operator, start_broker, start_coordinator, wait_ready
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from newsstand.cli.main import run

Command = Callable[..., object]


def until(is_so: Callable[[], object], what: str, patience: float = 20) -> None:
    end = time.monotonic() + patience
    while not is_so():
        assert time.monotonic() < end, f"not so after {patience:g} s: {what}"
        time.sleep(0.05)


def closed_with(socket: ClientConnection) -> tuple[int, str]:
    """The code and the reason with which a WebSocket is closed."""
    with suppress(ConnectionClosed):
        while True:
            socket.recv(15)
    assert socket.close_code is not None
    return socket.close_code, socket.close_reason or ""


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "platform.secret"
    file.write_text(SECRET)
    return file


@pytest.fixture
def user(secret: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """`newsstand user … --json`: what it prints."""

    def command(*words: str) -> object:
        code = run(["user", *words, "--secret-file", str(secret), "--json"])
        received = capsys.readouterr()
        assert code == 0, received.err
        return json.loads(received.out)

    return command


def test_accounts_of_a_standalone_broker(press: Press, tmp_path: Path, user: Command) -> None:
    broker = start_broker(tmp_path / "alone", press.url, "alone")
    try:
        wait_ready(broker.url)
        at = ("--broker", broker.url)
        with closing(login(broker.url, "ann")) as ann, closing(login(broker.url, "bob")):
            subscription = subscribe(ann, kind="fire")
            listed = user("list", *at)
            assert [one["name"] for one in listed["subscribers"]] == ["ann", "bob"]  # type: ignore[index]
            assert listed["next"] is None  # type: ignore[index]
            assert user("list", *at, "--limit", "1")["next"] == "ann"  # type: ignore[index]
            shown = dict(user("show", "ann", *at))  # type: ignore[call-overload]
            assert shown.pop("created") > 1_700_000_000
            assert shown == {
                "name": "ann", "broker": "alone", "subscriptions": 1, "sessions": 1, "state": "active",
            }  # fmt: skip
            with sockets(ann) as socket:
                assert user("disable", "ann", *at)["state"] == "disabled"  # type: ignore[index]
                assert closed_with(socket) == (4006, "the account is disabled")
            refused = ann.get("/subscriptions")
            assert (refused.status_code, "is disabled" in refused.json()["error"]) == (403, True)
            with sockets(ann) as socket:
                assert closed_with(socket)[0] == 4006
            broker.kill()
            broker = start_broker(tmp_path / "alone", press.url, "alone")
            wait_ready(broker.url)
            at = ("--broker", broker.url)
            who = {"name": "ann", "password": PASSWORD}
            assert httpx.post(f"{broker.url}/login", json=who, verify=False).status_code == 403
            assert user("enable", "ann", *at)["state"] == "active"  # type: ignore[index]
            found = httpx.get(
                f"{broker.url}/subscriptions",
                headers={"Authorization": ann.headers["Authorization"]},
                verify=False,
            )
            assert [one["id"] for one in found.json()["subscriptions"]] == [subscription["id"]]
            assert user("delete", "ann", *at, "--yes") == {"deleted": "ann"}
            assert httpx.post(f"{broker.url}/login", json=who, verify=False).status_code == 401
    finally:
        assert broker.stop() == 0


class Pair:
    """A coordinator with a short lease, and two brokers."""

    def __init__(self, press: Press, folder: Path) -> None:
        self._press, self._folder = press, folder
        self.coordinator = start_coordinator(folder / "coordinator", 0, "--lease-s", 1)
        self.brokers: dict[str, Process] = {}
        for name in ("one", "two"):
            self.start(name)

    def start(self, name: str, port: int = 0) -> None:
        more = ("--coordinator", self.coordinator.url)
        self.brokers[name] = start_broker(self._folder / name, self._press.url, name, port, *more)
        wait_ready(self.brokers[name].url)

    def url(self, name: str) -> str:
        return self.brokers[name].url

    def restart(self, name: str) -> None:
        port = int(self.url(name).rpartition(":")[2])
        self.brokers[name].kill()
        self.start(name, port)

    def stop(self) -> None:
        for process in (*self.brokers.values(), self.coordinator):
            process.kill()


@pytest.fixture
def pair(press: Press, tmp_path: Path) -> Iterator[Pair]:
    made = Pair(press, tmp_path)
    try:
        yield made
    finally:
        made.stop()


def test_accounts_of_a_coordinator_hold_at_all_brokers(press: Press, pair: Pair, user: Command) -> None:
    at = ("--coordinator", pair.coordinator.url)
    with closing(login(pair.url("one"), "cleo")) as cleo:
        subscribe(cleo, kind="cleos-own")
        until(lambda: user("show", "cleo", *at)["subscriptions"] == 1, "the coordinator knows")  # type: ignore[index]
        with sockets(cleo) as socket:
            user("disable", "cleo", *at)
            assert closed_with(socket) == (4006, "the account is disabled")
        for name in ("one", "two"):
            who = {"name": "cleo", "password": PASSWORD}
            assert httpx.post(f"{pair.url(name)}/login", json=who, verify=False).status_code == 403
            with closing(httpx.Client(base_url=pair.url(name), headers=cleo.headers, verify=False)) as elsewhere:
                assert elsewhere.get("/subscriptions").status_code == 403
        assert user("enable", "cleo", *at)["subscriptions"] == 1  # type: ignore[index]
        with closing(httpx.Client(base_url=pair.url("two"), headers=cleo.headers, verify=False)) as elsewhere:
            until(lambda: elsewhere.get("/subscriptions").status_code == 200, "Cleo is let in again")
            assert len(elsewhere.get("/subscriptions").json()["subscriptions"]) == 1
            new = str(user("reset", "cleo", *at)["password"])  # type: ignore[index]
            until(lambda: elsewhere.get("/subscriptions").status_code == 401, "all sessions have ended")
        assert httpx.post(f"{pair.url('two')}/login", json=who, verify=False).status_code == 401
        who["password"] = new
        until(
            lambda: httpx.post(f"{pair.url('two')}/login", json=who, verify=False).status_code == 200,
            "the new password is good",
        )


def test_deleted_account_does_not_return(press: Press, pair: Pair, user: Command) -> None:
    at = ("--coordinator", pair.coordinator.url)
    with closing(login(pair.url("one"), "dora")) as dora:
        subscribe(dora, kind="doras-own")
        until(lambda: user("show", "dora", *at)["subscriptions"] == 1, "the coordinator knows")  # type: ignore[index]
        pair.brokers["one"].kill()  # it has her record, and is away when she is deleted
        user("delete", "dora", *at, "--yes")
        pair.restart("one")
        asked = httpx.get(
            f"{pair.url('one')}/subscriptions",
            headers={"Authorization": dora.headers["Authorization"]},
            verify=False,
        )
        assert asked.status_code == 401
        listed = user("list", *at)["subscribers"]  # type: ignore[index]
        assert [one["name"] for one in listed] == []

        def streams() -> list[object]:
            headers = {"Authorization": f"Bearer {ADMIN}"}
            found = [
                httpx.get(f"{press.url}/brokers/{name}/subscriptions", headers=headers, verify=False).json()[
                    "subscriptions"
                ]
                for name in ("one", "two")
            ]
            return [one for some in found for one in some if one["values"] == ["doras-own"]]

        until(lambda: not streams(), "the cluster has none of her streams")


def test_broker_with_a_coordinator_lists_no_accounts(pair: Pair) -> None:
    headers = {"Authorization": f"Bearer {as_operator('one')}"}
    refused = httpx.get(f"{pair.url('one')}/subscribers", headers=headers, verify=False)
    assert (refused.status_code, pair.coordinator.url in refused.json()["error"]) == (409, True)


def test_user_command_reads_coordinator_and_secret_from_the_app(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = tmp_path / "app"
    (app / "data" / "coordinator").mkdir(parents=True)
    (app / "newsstand.toml").write_text(APP)
    assert run(["user", "list", "--app", str(app)]) == 2
    assert "no platform has used" in capsys.readouterr().err
    coordinator = start_coordinator(tmp_path / "coordinator")
    try:
        port = coordinator.url.rpartition(":")[2]
        table = f'[coordinator]\nhost = "127.0.0.1"\nport = {port}\n'
        (app / "data" / "coordinator" / "coordinator.toml").write_text(table)
        (app / "data" / "platform.secret").write_text(SECRET)
        assert run(["user", "list", "--app", str(app), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"subscribers": [], "next": None}
    finally:
        coordinator.kill()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["list"], "give exactly one of --app DIR, --coordinator URL and --broker URL"),
        (["list", "--broker", "http://127.0.0.1:1", "--coordinator", "http://127.0.0.1:1"], "give exactly one of"),
        (
            ["list", "--coordinator", "http://127.0.0.1:1"],
            "no token: give --token-file FILE or --secret-file FILE",
        ),
        (["list", "--coordinator", "http://127.0.0.1:1", "--secret-file", "nowhere"], "nowhere: cannot be read"),
        (["delete", "ann", "--coordinator", "URL", "--secret-file", "SECRET"], "there is no subscriber 'ann'"),
        (["show", "ann", "--coordinator", "URL", "--token-file", "WRONG"], "the token is not known"),
        (["reset", "ann", "--stdin", "--coordinator", "URL", "--secret-file", "SECRET"], "password: 8 to 1024"),
    ],
)
def test_error_is_one_line_for_wrong_options(
    tmp_path: Path,
    secret: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    complaint: str,
) -> None:
    monkeypatch.delenv("NEWSSTAND_TOKEN", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong")
    coordinator = start_coordinator(tmp_path / "coordinator") if "URL" in words else None
    try:
        given = {"URL": coordinator.url if coordinator else "", "SECRET": str(secret), "WRONG": str(wrong)}
        assert run(["user", *(given.get(word, word) for word in words)]) == 2
    finally:
        if coordinator is not None:
            coordinator.kill()
    received = capsys.readouterr()
    assert received.out == ""
    assert complaint in received.err
    assert len(received.err.splitlines()) == 1


def test_delete_asks_for_confirmation_on_a_terminal_only(
    press: Press, tmp_path: Path, secret: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    broker = start_broker(tmp_path / "alone", press.url, "asked")
    try:
        wait_ready(broker.url)
        login(broker.url, "eve").close()
        words = ["user", "delete", "eve", "--broker", broker.url, "--secret-file", str(secret)]
        assert run(words) == 2
        assert "give --yes to delete without" in capsys.readouterr().err
        assert run(["user", "show", *words[2:]]) == 0
    finally:
        broker.stop()
