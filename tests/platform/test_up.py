"""A whole platform in real processes: what dies comes back, and nothing stays behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from press import APP
from websockets.sync.client import connect

from newsstand.platform.folder import PlatformFolder
from newsstand.platform.pinning import trusting_only
from newsstand.platform.supervisor import joined_line

UP_WITH_PRESS = Path(__file__).with_name("up_with_press.py")
MARK = "NEWSSTAND_TEST_MARK"
PASSWORD = "correct horse battery"


class Up:
    """A platform that was started; every process of it is known by a mark in its environment."""

    def __init__(
        self,
        folder: Path,
        *options: object,
        command: tuple[object, ...] = (),
        log: str | None = "--log",
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.log = folder / "platform.log"
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        words = command or (sys.executable, UP_WITH_PRESS, folder / "app")
        self.process = subprocess.Popen(
            [str(word) for word in (*words, *((log, self.log) if log else ()), *options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {MARK: self.mark},
            start_new_session=True,
            umask=0o022,
        )

    def addresses(self) -> dict[str, object]:
        """What it tells when it is ready."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            raise AssertionError(f"{self.process.stderr.read()}\n{self.told()}")
        return json.loads(line)

    def told(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def processes(self) -> dict[int, str]:
        found = {}
        for process in Path("/proc").iterdir():
            try:
                if f"{MARK}={self.mark}".encode() in (process / "environ").read_bytes():
                    found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (OSError, ValueError):
                continue
        return found

    def process_of(self, words: str) -> int:
        (found,) = [number for number, command in self.processes().items() if words in command]
        return found

    def ended(self, patience: float = 60) -> tuple[int, str]:
        _, said = self.process.communicate(timeout=patience)
        return self.process.returncode, said

    def nothing_is_left(self, patience: float = 30) -> bool:
        return eventually(lambda: not self.processes(), patience)

    def sweep(self) -> None:
        for number in self.processes():
            os.kill(number, signal.SIGKILL)
        self.process.communicate()


def eventually(true: object, patience: float = 30) -> bool:
    until = time.monotonic() + patience
    while not true():  # type: ignore[operator]
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "newsstand.toml").write_text(APP)
    return tmp_path


@pytest.fixture
def started() -> Iterator[list[Up]]:
    all_of_them: list[Up] = []
    yield all_of_them
    for one in all_of_them:
        one.sweep()


def login(url: str, name: str) -> httpx.Client:
    client = httpx.Client(base_url=url, timeout=20)
    assert client.post("/subscribers", json={"name": name, "password": PASSWORD}).status_code in (201, 409)
    answer = client.post("/login", json={"name": name, "password": PASSWORD})
    assert answer.status_code == 200, answer.text
    client.headers["Authorization"] = f"Bearer {answer.json()['access']}"
    return client


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.HTTPError:
        return False


def hears(client: httpx.Client, cluster: str, subscription: dict[str, object], payload: str) -> bool:
    """Whether a result that is printed now reaches a subscriber over a socket, and can be read."""
    url = str(client.base_url).replace("http", "ws", 1) + "/notifications"
    with connect(url, additional_headers={"Authorization": client.headers["Authorization"]}) as ws:
        while "ready" not in json.loads(ws.recv(10)):
            pass
        printed = [{"channel": "of_kind", "values": ["fire"], "payload": {"id": payload}}]
        assert httpx.post(f"{cluster}/press", json=printed, timeout=30).json() == {"stored": 1}
        position = json.loads(ws.recv(20))["position"]
        read = client.get(f"/subscriptions/{subscription['id']}/results").json()["results"]
        ws.send(json.dumps({"ack": {subscription["id"]: position}}))
        while "acked" not in json.loads(ws.recv(10)):
            pass
    return [one["payload"]["id"] for one in read] == [payload]


def test_a_killed_part_comes_back_and_subscribers_go_on(folder: Path, started: list[Up]) -> None:
    up = Up(folder)
    started.append(up)
    where = up.addresses()
    cluster, coordinator, broker = where["cluster"]["url"], where["coordinator"]["url"], where["brokers"][0]["url"]
    ann = login(broker, "ann")
    subscription = ann.post("/subscriptions", json={"channel": "of_kind", "values": {"kind": "fire"}}).json()
    assert hears(ann, cluster, subscription, "before")
    for part, url, words in (
        ("cluster", cluster, "broker/press.py"),
        ("coordinator", coordinator, "main coordinator"),
        ("broker edge", broker, "main broker"),
    ):
        killed = up.process_of(words)
        os.kill(killed, signal.SIGKILL)
        assert eventually(lambda number=killed: number not in up.processes())
        assert eventually(lambda told=f"{part} is back": told in up.told()), up.told()[-2000:]
        assert f"{part} has died (SIGKILL); it is started again in 0.5 s" in up.told()
        assert is_ready(url)
        assert hears(ann, cluster, subscription, f"after {part}")
    up.process.send_signal(signal.SIGTERM)
    code, said = up.ended()
    assert code == 0
    assert "newsstand: broker edge has died" in said
    assert up.nothing_is_left()


def test_only_the_owner_may_read_what_a_platform_writes(folder: Path, started: list[Up]) -> None:
    up = Up(folder)
    started.append(up)
    where = up.addresses()
    data = Path(where["data"])
    ann = login(where["brokers"][0]["url"], "ann")
    assert hears(
        ann,
        where["cluster"]["url"],
        ann.post("/subscriptions", json={"channel": "of_kind", "values": {"kind": "fire"}}).json(),
        "before",
    )
    assert eventually((data / "brokers/edge/access/events.csv").exists)
    assert list(data.rglob("*.sqlite-wal")), "the stores are in use"
    assert up.log.stat().st_mode & 0o777 == 0o600
    for path in (data, *data.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_a_platform_with_certificates_starts_and_places_its_topics(
    folder: Path, started: list[Up], made: Callable[[str], Path]
) -> None:
    certificate = made("news.example")
    authority = certificate.with_name("authority.pem")
    with (folder / "app" / "newsstand.toml").open("a") as file:
        key = certificate.with_suffix(".key")
        tls = f'certificate = "{certificate}"\nkey = "{key}"\n'
        file.write(f'\n[coordinator]\n{tls}\n[[brokers]]\n{tls}authority = "{authority}"\n')
        file.write('\n[storages]\nstorms = ["edge"]\n')
    up = Up(folder)
    started.append(up)
    where = up.addresses()
    coordinator = where["coordinator"]["url"]
    assert coordinator.startswith("https://")
    token = PlatformFolder(Path(where["data"])).operator_token("test")
    with httpx.Client(verify=trusting_only(certificate), headers={"Authorization": f"Bearer {token}"}) as client:
        assert client.get(f"{coordinator}/overlay").json()["storages"]["storms"]["wanted"] == ["edge"]


@pytest.mark.parametrize("secrets", ["platform.secret", "brokers/edge/broker.token"])
def test_secrets_are_made_once_and_only_for_their_owner(tmp_path: Path, secrets: str) -> None:
    folder = PlatformFolder(tmp_path)
    folder.prepare(["edge"])
    before = (tmp_path / secrets).read_text()
    folder.prepare(["edge"])
    assert (tmp_path / secrets).read_text() == before
    assert (tmp_path / secrets).stat().st_mode & 0o777 == 0o600


def test_ctrl_c_in_a_terminal_leaves_one_log_and_no_process_behind(folder: Path, started: list[Up]) -> None:
    up = Up(folder, "--brokers", 2)
    started.append(up)
    assert [one["name"] for one in up.addresses()["brokers"]] == ["edge", "edge2"]
    assert len(up.processes()) >= 5
    os.killpg(up.process.pid, signal.SIGINT)
    code, said = up.ended()
    assert code == 0
    assert "newsstand: stopping …" in said
    assert up.nothing_is_left(0.5)
    lines = [json.loads(line) for line in up.told().splitlines()]
    assert {line["part"] for line in lines} == {"cluster", "coordinator", "broker edge", "broker edge2"}
    assert all(line.get("message") for line in lines)
    stopped = [line["part"] for line in lines if line["message"].startswith("Finished server process")]
    assert sorted(stopped[:-1]) == ["broker edge", "broker edge2"]
    assert stopped[-1] == "coordinator"


def test_ctrl_c_while_it_starts_leaves_no_process_behind(folder: Path, started: list[Up]) -> None:
    up = Up(folder)
    started.append(up)
    assert eventually(lambda: len(up.processes()) >= 2)
    up.process.send_signal(signal.SIGINT)
    assert up.ended()[0] in (0, 130, -signal.SIGINT)
    assert up.nothing_is_left(5)


def test_a_second_ctrl_c_kills_what_does_not_stop(folder: Path, started: list[Up]) -> None:
    up = Up(folder)
    started.append(up)
    up.addresses()
    os.kill(up.process_of("main broker"), signal.SIGSTOP)
    os.kill(up.process.pid, signal.SIGINT)
    time.sleep(0.5)
    assert up.process.poll() is None
    os.kill(up.process.pid, signal.SIGINT)
    assert up.ended(10)[0] == 130
    assert up.nothing_is_left(5)


def test_kill_9_of_up_leaves_no_process_behind(folder: Path, started: list[Up]) -> None:
    up = Up(folder)
    started.append(up)
    up.addresses()
    up.process.kill()
    assert up.nothing_is_left(10), up.processes()


def test_a_used_port_is_refused_in_one_line_before_anything_starts(folder: Path, started: list[Up]) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        up = Up(folder, "--base-port", port - 20)
        started.append(up)
        code, said = up.ended()
    assert code == 2
    assert said.splitlines() == [
        f"newsstand: broker edge: cannot listen on 127.0.0.1 port {port}: Address already in use; "
        "take another with --base-port"
    ]
    assert up.told() == ""


def test_a_used_folder_is_refused_in_one_line(folder: Path, started: list[Up]) -> None:
    first = Up(folder)
    started.append(first)
    where = first.addresses()
    second = Up(folder)
    started.append(second)
    code, said = second.ended()
    assert code == 2
    assert said.splitlines() == [
        f"newsstand: data folder {folder / 'app' / 'data'}: is in use: another platform, process "
        f"{first.process.pid}, runs over it; stop it, or take another folder with --data"
    ]
    assert is_ready(where["brokers"][0]["url"])


def test_a_part_that_cannot_start_ends_all_with_its_reason(folder: Path, started: list[Up]) -> None:
    last = [f"line {number}" for number in range(20)]
    cannot = f"import sys; print(*{last}, sep='\\n'); sys.exit('newsstand: the moon is in the wrong house')"
    up = Up(folder, "--cluster-command", sys.executable, "-c", cannot)
    started.append(up)
    code, said = up.ended()
    assert code == 2
    assert said.splitlines()[1:] == [
        *(f"cluster: {line}" for line in last[-9:]),
        "newsstand: cluster cannot start (exit code 1): the moon is in the wrong house",
    ]
    assert [json.loads(line)["message"] for line in up.told().splitlines()][:20] == last
    assert up.nothing_is_left(5)


def test_the_terminal_shows_addresses_and_problems_and_the_file_has_the_log(
    folder: Path, started: list[Up]
) -> None:
    problem = 'import json, time; print(json.dumps({"level": "warning", "message": "hot"}), flush=True)'
    told = (
        f"{problem}; import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = (
        sys.executable,
        "-c",
        told,
        UP_WITH_PRESS.parents[1] / "broker" / "press.py",
        folder / "app",
        "{port}",
    )
    up = Up(folder, "--cluster-command", *command, log=None)
    started.append(up)
    where = up.addresses()
    log = folder / "app" / "data" / "logs" / "platform.log"
    assert where["log"] == str(log)
    up.process.send_signal(signal.SIGTERM)
    code, said = up.ended()
    assert code == 0
    assert said.splitlines() == [
        f"newsstand: starting cluster, coordinator, broker edge …; the log is {log}",
        "newsstand: cluster: warning: hot",
        "newsstand: stopping …",
    ]
    assert {json.loads(line)["part"] for line in log.read_text().splitlines()} == {
        "cluster",
        "coordinator",
        "broker edge",
    }
    assert log.stat().st_mode & 0o777 == 0o600


def test_all_of_the_log_is_shown_on_demand(folder: Path, started: list[Up]) -> None:
    up = Up(folder, "--verbose")
    started.append(up)
    up.addresses()
    up.process.send_signal(signal.SIGTERM)
    code, said = up.ended()
    assert code == 0
    assert [line for line in said.splitlines() if line.startswith("{")] == up.told().splitlines()


@pytest.mark.parametrize(
    ("said", "joined"),
    [
        (b'{"level": "info"}', {"part": "broker x", "level": "info"}),
        (b"{}", {"part": "broker x", "level": "info", "message": "{}"}),
        (b"caf\xc3\xa9 \xff", {"part": "broker x", "level": "info", "message": "café \ufffd"}),
    ],
)
def test_a_line_of_any_kind_becomes_an_object(said: bytes, joined: dict[str, str]) -> None:
    told = json.loads(joined_line("broker x", said))
    told.pop("at", None)
    assert told == joined


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_platform_with_spark_starts_serves_and_leaves_nothing_behind(folder: Path, started: list[Up]) -> None:
    newsstand = (sys.executable, "-m", "newsstand.cli.main", "up", folder / "app", "--json", "--base-port", 0)
    for end in (signal.SIGINT, signal.SIGKILL):
        up = Up(folder, "--master", "local[2]", "--conf", "spark.driver.memory=1g", command=newsstand)
        started.append(up)
        where = up.addresses()
        assert any(command.split()[0].endswith("java") for command in up.processes().values())
        cluster, broker = where["cluster"]["url"], where["brokers"][0]["url"]
        token = Path(where["cluster"]["token_file"]).read_text().strip()
        ann = login(broker, "ann")
        answer = ann.post("/subscriptions", json={"channel": "pushed", "values": {"kind": "fire"}})
        assert answer.status_code in (200, 201), answer.text
        number = answer.json()["head"]
        report = {"id": f"r{number}", "kind": "fire"}
        published = httpx.post(
            f"{cluster}/datasets/reports/publications",
            content=json.dumps(report),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"},
            timeout=60,
        )
        assert published.json()["accepted"] == 1
        path = f"/subscriptions/{answer.json()['id']}/results"

        def have(
            read: httpx.Client = ann, path: str = path, head: int = number + 1
        ) -> bool:  # what was not acknowledged comes again
            return [one["payload"]["id"] for one in read.get(path).json()["results"]] == [
                f"r{n}" for n in range(head)
            ]

        assert eventually(have, 60), up.told()[-2000:]
        up.process.send_signal(end)
        code, _ = up.ended(90)
        assert code == (0 if end == signal.SIGINT else -signal.SIGKILL)
        assert up.nothing_is_left(60), up.processes()
        assert not re.search(r'"level": "error"', up.told()), up.told()
