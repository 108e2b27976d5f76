"""A whole platform in real processes: killed parts restart, and no process remains at the end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from support.broker.press import APP
from support.broker.up import UP_WITH_PRESS, Up, eventually
from websockets.sync.client import connect

from newsstand.platform.data_folder import PlatformFolder
from newsstand.platform.supervisor import joined_line, trusting_only

PASSWORD = "correct horse battery"


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


def test_killed_part_restarts_and_subscribers_continue(folder: Path, started: list[Up]) -> None:
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
        assert eventually(lambda output=f"{part} is ready again": output in up.output()), up.output()[-2000:]
        assert f"{part} died (SIGKILL); restarting in 0." in up.output()
        assert is_ready(url)
        assert hears(ann, cluster, subscription, f"after {part}")
    up.process.send_signal(signal.SIGTERM)
    code, said = up.ended()
    assert code == 0
    assert "newsstand: broker edge died" in said
    assert up.nothing_is_left()


def test_files_of_platform_are_readable_only_by_owner(folder: Path, started: list[Up]) -> None:
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


def test_metrics_token_reads_only_metrics_of_all_parts(folder: Path, started: list[Up]) -> None:
    up = Up(folder)
    started.append(up)
    where = up.addresses()
    secret = PlatformFolder(Path(where["data"])).secret_file
    words = ("token", "operator", "--name", "prometheus", "--scope", "metrics", "--secret-file", str(secret))
    made = subprocess.run(
        [sys.executable, "-m", "newsstand.cli.main", *words], capture_output=True, text=True, check=True
    )
    urls = [where["cluster"]["url"], where["coordinator"]["url"], where["brokers"][0]["url"]]
    with httpx.Client(headers={"Authorization": f"Bearer {made.stdout.strip()}"}, timeout=20) as scraper:
        for url, other in zip(urls, ("/channels", "/subscribers", "/stats"), strict=True):
            assert eventually(lambda url=url: is_ready(url))
            assert httpx.get(f"{url}/metrics").status_code == 401, url
            assert "newsstand_http_request_seconds" in scraper.get(f"{url}/metrics").raise_for_status().text
            assert scraper.get(f"{url}{other}").status_code == 403, other


def test_platform_with_certificates_starts_and_places_topics(
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
def test_secrets_are_created_once_and_private(tmp_path: Path, secrets: str) -> None:
    folder = PlatformFolder(tmp_path)
    folder.prepare(["edge"])
    before = (tmp_path / secrets).read_text()
    folder.prepare(["edge"])
    assert (tmp_path / secrets).read_text() == before
    assert (tmp_path / secrets).stat().st_mode & 0o777 == 0o600


def test_ctrl_c_in_terminal_leaves_one_log_and_no_process(folder: Path, started: list[Up]) -> None:
    up = Up(folder, "--brokers", 2)
    started.append(up)
    assert [one["name"] for one in up.addresses()["brokers"]] == ["edge", "edge2"]
    assert len(up.processes()) >= 5
    os.killpg(up.process.pid, signal.SIGINT)
    code, said = up.ended()
    assert code == 0
    assert "newsstand: stopping …" in said
    assert up.nothing_is_left(0.5)
    lines = [json.loads(line) for line in up.output().splitlines()]
    assert {line["component"] for line in lines} == {"cluster", "coordinator", "broker edge", "broker edge2"}
    assert all(line.get("message") for line in lines)
    stopped = [line["component"] for line in lines if line["message"].startswith("Finished server process")]
    assert sorted(stopped[:-1]) == ["broker edge", "broker edge2"]
    assert stopped[-1] == "coordinator"


def test_ctrl_c_during_start_leaves_no_process(folder: Path, started: list[Up]) -> None:
    up = Up(folder)
    started.append(up)
    assert eventually(lambda: len(up.processes()) >= 2)
    up.process.send_signal(signal.SIGINT)
    assert up.ended()[0] in (0, 130, -signal.SIGINT)
    assert up.nothing_is_left(5)


def test_ctrl_c_twice_kills_parts_that_do_not_stop(folder: Path, started: list[Up]) -> None:
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


def test_kill_9_of_up_leaves_no_process(folder: Path, started: list[Up]) -> None:
    up = Up(folder)
    started.append(up)
    up.addresses()
    up.process.kill()
    assert up.nothing_is_left(10), up.processes()


@pytest.mark.parametrize(
    ("process", "option", "offset"),
    [
        ("cluster", "--cluster-port", 0),
        ("coordinator", "--coordinator-port", 0),
        ("broker edge", "--base-port", 20),
    ],
)
def test_port_rejected_in_one_line_when_used(
    folder: Path, started: list[Up], process: str, option: str, offset: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        command = (sys.executable, "-m", "newsstand.cli.main", "up", folder / "app", "--base-port", 0)
        up = Up(folder, option, port - offset, command=command)
        started.append(up)
        code, said = up.ended()
    assert code == 2
    assert said.splitlines() == [
        f"newsstand: {process}: cannot listen on 127.0.0.1 port {port}: Address already in use; "
        f"take another with {option}"
    ]
    assert up.output() == ""
    assert not (folder / "app" / "data").exists()


def test_folder_rejected_in_one_line_when_used(folder: Path, started: list[Up]) -> None:
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


def test_part_that_cannot_start_ends_platform_with_its_reason(folder: Path, started: list[Up]) -> None:
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
    assert [json.loads(line)["message"] for line in up.output().splitlines()][:20] == last
    assert up.nothing_is_left(5)


def test_terminal_shows_addresses_and_problems_and_file_has_log(folder: Path, started: list[Up]) -> None:
    problem = 'import json, time; print(json.dumps({"level": "warning", "message": "hot"}), flush=True)'
    output = (
        f"{problem}; import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = (
        sys.executable,
        "-c",
        output,
        UP_WITH_PRESS.with_name("press.py"),
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
        f"newsstand: starting cluster, coordinator, broker edge …, within half a minute or so; the log is {log}",
        "newsstand: cluster: warning: hot",
        "newsstand: stopping …",
    ]
    assert {json.loads(line)["component"] for line in log.read_text().splitlines()} == {
        "cluster",
        "coordinator",
        "broker edge",
    }
    assert log.stat().st_mode & 0o777 == 0o600


def test_log_is_shown_completely_on_demand(folder: Path, started: list[Up]) -> None:
    up = Up(folder, "--verbose")
    started.append(up)
    up.addresses()
    up.process.send_signal(signal.SIGTERM)
    code, said = up.ended()
    assert code == 0
    assert [line for line in said.splitlines() if line.startswith("{")] == up.output().splitlines()


@pytest.mark.parametrize(
    ("said", "joined"),
    [
        (b'{"level": "info"}', {"component": "broker x", "level": "info"}),
        (b"{}", {"component": "broker x", "level": "info", "message": "{}"}),
        (b"caf\xc3\xa9 \xff", {"component": "broker x", "level": "info", "message": "café \ufffd"}),
    ],
)
def test_line_of_any_kind_becomes_object(said: bytes, joined: dict[str, str]) -> None:
    output = json.loads(joined_line("broker x", said))
    output.pop("at", None)
    assert output == joined


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_platform_with_spark_serves_and_leaves_nothing(folder: Path, started: list[Up]) -> None:
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

        assert eventually(have, 60), up.output()[-2000:]
        up.process.send_signal(end)
        code, _ = up.ended(90)
        assert code == (0 if end == signal.SIGINT else -signal.SIGKILL)
        assert up.nothing_is_left(60), up.processes()
        assert not re.search(r'"level": "error"', up.output()), up.output()
