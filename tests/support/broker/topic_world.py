"""Real brokers in an overlay, with their coordinator, and clients over real sockets."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from support.broker.press import Press
from support.broker.process import NEWSSTAND, SECRET, Process, as_operator, broker_secrets, wait_ready

PASSWORD = "correct horse battery"
PATIENCE_S = 30.0


def until(is_so: Callable[[], object], what: str, patience: float = PATIENCE_S, every: float = 0.05) -> None:
    end = time.monotonic() + patience
    while not is_so():
        assert time.monotonic() < end, f"not so after {patience:g} s: {what}"
        time.sleep(every)


class World:
    """Brokers in a line, one after the other from west to east, as long as all live."""

    def __init__(self, folder: Path, cluster: str, names: Iterable[str], degree: int = 2) -> None:
        self.folder = folder
        self._cluster = cluster
        (folder / "coordinator").mkdir(parents=True)
        self.coordinator = Process(
            NEWSSTAND, "coordinator", "--data", folder / "coordinator", "--port", 0, "--lease-s", 1.5,
            env={
                "NEWSSTAND_COORDINATOR_SECRET": SECRET,
                "NEWSSTAND_COORDINATOR_OVERLAY_DEGREE": str(degree),
            },
        )  # fmt: skip
        self._admin = httpx.Client(
            base_url=self.coordinator.url,
            headers={"Authorization": f"Bearer {as_operator()}"},
            timeout=10,
            verify=False,
        )
        self.names = list(names)
        self.brokers: dict[str, Process] = {}
        for number, name in enumerate(self.names):
            self.start(name, ready=False)
            if degree == 2 and number:
                until(lambda: set(self.brokers) <= set(self.overlay()["brokers"]), "brokers are in the tree")
        for name in self.names:
            wait_ready(self.brokers[name].url)
        self.until_linked()

    def start(self, name: str, ready: bool = True, port: int = 0) -> None:
        """Start a broker, or start it again over its folder."""
        self.brokers[name] = Process(
            NEWSSTAND, "broker", "--name", name, "--cluster", self._cluster, "--data", self.folder / name,
            "--port", port, "--coordinator", self.coordinator.url,
            env={
                **broker_secrets(name),
                "NEWSSTAND_BROKER_LAT": "0",
                "NEWSSTAND_BROKER_LON": str(self.names.index(name)),
            },
        )  # fmt: skip
        if ready:
            wait_ready(self.brokers[name].url)

    def kill(self, *names: str) -> None:
        for name in names:
            self.brokers.pop(name).kill()

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        self._admin.close()
        self.coordinator.stop()

    def url(self, name: str) -> str:
        return self.brokers[name].url

    def overlay(self) -> dict:  # type: ignore[type-arg]
        return self._admin.get("/overlay").raise_for_status().json()

    def metric(self, broker: str, name: str) -> float:
        headers = {"Authorization": f"Bearer {as_operator(broker)}"}
        text = httpx.get(f"{self.url(broker)}/metrics", headers=headers, verify=False).text
        [line] = [line for line in text.splitlines() if line.startswith(f"newsstand_broker_{name} ")]
        return float(line.split()[1])

    def until_linked(self) -> None:
        """Every broker that runs is in the tree, and has the links that it should have."""

        def linked() -> bool:
            message = self.overlay()
            if sorted(message["brokers"]) != sorted(self.brokers):
                return False
            degrees = {name: sum(name in link for link in message["links"]) for name in self.brokers}
            return all(self.metric(name, "overlay_links") == degree for name, degree in degrees.items())

        until(linked, "brokers are linked")

    def place(self, **assignment: list[str]) -> None:
        """Say where topics are kept."""
        headers = {"If-Match": "*"}
        self._admin.put("/overlay/storages", json={"assignment": assignment}, headers=headers).raise_for_status()

    def placed(self, **assignment: list[str]) -> None:
        """The same, and wait until it is so."""
        self.place(**assignment)
        until(lambda: self.overlay()["settled"], "topics are where they are wanted")

    def login(self, broker: str, name: str) -> httpx.Client:
        client = httpx.Client(base_url=self.url(broker), timeout=20, verify=False)
        who = {"name": name, "password": PASSWORD}
        assert client.post("/subscribers", json=who).status_code in (201, 409)
        token = client.post("/login", json=who).raise_for_status().json()["access"]
        client.headers["Authorization"] = f"Bearer {token}"
        return client

    @contextmanager
    def client(self, broker: str, name: str | None = None) -> Iterator[Client]:
        http = self.login(broker, name or f"guest-{broker}-{time.monotonic_ns()}")
        url = str(http.base_url).replace("http", "ws", 1).rstrip("/")
        headers = {"Authorization": http.headers["Authorization"]}
        with closing(http), connect(f"{url}/topics", additional_headers=headers) as socket:
            yield Client(http, socket)


class Client:
    """A client of `/topics`; what comes is sorted by a thread."""

    def __init__(self, http: httpx.Client, socket: ClientConnection) -> None:
        self.http = http
        self.socket = socket
        self.messages: list[dict] = []  # type: ignore[type-arg]
        self.answers: dict[int, list[dict]] = {}  # type: ignore[type-arg]
        self.closed: tuple[int, str] | None = None
        self._number = 0
        self._saying = threading.Lock()
        self._ready = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()
        assert self._ready.wait(10)

    def _listen(self) -> None:
        try:
            for text in self.socket:
                message = json.loads(text)
                if "message" in message and "for" in message:
                    self.messages.append(message)
                elif "ready" in message:
                    self._ready.set()
                else:
                    number = next(
                        message[word] for word in ("done", "error", "response", "end") if word in message
                    )
                    self.answers.setdefault(number, []).append(message)
        except ConnectionClosed:
            pass
        self.closed = (self.socket.close_code or 0, self.socket.close_reason or "")

    def say(self, **said: object) -> int:
        """Send a message: its number."""
        with self._saying:
            self._number += 1
            self.socket.send(json.dumps({**said, "id": self._number}))
            return self._number

    def last(self, number: int, patience: float = PATIENCE_S) -> dict:  # type: ignore[type-arg]
        """The last answer to a message."""

        def is_there() -> bool:
            return any("response" not in one for one in self.answers.get(number, ()))

        until(is_there, f"answer {number}", patience, 0.002)
        return self.answers[number][-1]

    def subscribe(self, wanted: str) -> int:
        number = self.say(subscribe=wanted)
        assert self.last(number) == {"done": number}
        return number

    def publish(self, topic: str, body: object = None, **attributes: object) -> dict:  # type: ignore[type-arg]
        return self.last(self.say(publish={"topic": topic, "attributes": attributes, "body": body}))

    def past(self, wanted: str) -> list[object]:
        """The bodies of what storages have, in order."""
        number = self.say(request=wanted)
        end = self.last(number)
        assert not end["unavailable"], end
        found = [one["message"] for one in self.answers[number] if "response" in one]
        assert end["count"] == len(found)
        return [one["body"] for one in sorted(found, key=lambda one: (one["at_ms"], one["id"]))]

    def bodies(self, topic: str) -> list[object]:
        """What was delivered of a topic, in the order of its coming."""
        return [one["message"]["body"] for one in list(self.messages) if one["message"]["topic"] == topic]

    def until_heard(self, by: Client, topic: str, **attributes: object) -> None:
        """Publish until another client, which subscribes to the topic, gets something: the way is there."""
        before = len(by.bodies(topic))

        def heard() -> bool:
            self.publish(topic, "is anybody there?", **attributes)
            time.sleep(0.1)
            return len(by.bodies(topic)) > before

        until(heard, f"{topic} gets through")


@contextmanager
def world(folder: Path, names: Iterable[str], degree: int = 2) -> Iterator[World]:
    press = Press(folder / "press")
    with press.serving():
        made = World(folder, press.url, names, degree)
        try:
            yield made
        finally:
            made.stop()
