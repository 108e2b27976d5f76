"""Plays a day in the city against a running data cluster.

    newsstand cluster examples/emergencies                in one terminal
    python examples/emergencies/play.py --broker          in another

Shelters are published first. Then a report comes every ten seconds or so, a shelter tells how many places are
left, and people publish where they are as they move. With `--broker` the program is also a broker: it subscribes
to what the people of the city want, hears from the cluster which streams have moved, and reads their results.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from newsstand.auth.api_tokens import find_token
from newsstand.auth.signing import BadSignature, Recipient, verify
from newsstand.errors import BadOption, NewsstandError
from newsstand.scenarios.emergencies.city import City, Record

CALLBACK = "/notifications"
"""The path that receives the cluster's notifications."""
PATIENCE_S = 30.0
"""The time for which requests are repeated while the cluster is busy or unavailable."""

MOVES_S = 30.0
"""Seconds of city time between two rounds of locations."""

Json = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Play until the time has elapsed or Ctrl-C."""
    options = read_options(arguments)
    screen = Screen()
    try:
        data = options.data or options.app / "data"
        url = options.url or read_address(data)
        token = find_token(data, options.token_file, os.environ.get("NEWSSTAND_TOKEN"))
        city = City(options.seed)
        with Cluster(url, token) as cluster:
            if options.broker:
                with broker_of(city, cluster, screen) as broker:
                    play(city, cluster, screen, options, broker)
            else:
                play(city, cluster, screen, options, None)
    except KeyboardInterrupt:
        pass
    except NewsstandError as error:
        screen.close()
        print(f"play: {error}", file=sys.stderr)
        return 2
    screen.close()
    return 0


def play(
    city: City, cluster: Cluster, screen: Screen, options: argparse.Namespace, broker: CityBroker | None
) -> None:
    """Publish the events of the city, `rate` times as fast as real time."""
    draw = random.Random(options.seed)
    counts = {"shelters": cluster.publish("shelters", city.shelters()), "reports": 0, "locations": 0}
    began = time.monotonic()
    next_report = next_move = 0.0
    standing: dict[object, Record] = {}
    while True:
        real = time.monotonic() - began
        if options.seconds is not None and real >= options.seconds:
            return
        now = real * options.rate
        if now >= next_move:
            moved = [record for record in city.locations(now) if standing.get(record["user"]) != record]
            standing.update({record["user"]: record for record in moved})
            counts["locations"] += cluster.publish("locations", moved)
            next_move = now + MOVES_S
        reports: list[Record] = []
        while now >= next_report:
            reports.append(city.report(next_report))
            next_report += options.every * draw.uniform(0.5, 1.5)
        if reports:
            counts["shelters"] += cluster.publish("shelters", [city.shelter_news()])
            counts["reports"] += cluster.publish("reports", reports)
        heard = f" · {broker.notifications} notifications, {broker.results} results" if broker else ""
        published = ", ".join(f"{count:,} {dataset}" for dataset, count in counts.items())
        screen.status(f"{clock(now)} in the city · published {published}{heard}")
        time.sleep(min(0.5, max(0.01, (min(next_report, next_move) - now) / options.rate)))


class Cluster:
    """The data cluster, over HTTP."""

    def __init__(self, url: str, token: str) -> None:
        self._http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30)
        self._met = False

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def publish(self, dataset: str, records: Sequence[Record]) -> int:
        """Add records to a dataset; return their number. The idempotency key makes a repetition harmless."""
        if not records:
            return 0
        body = "\n".join(json.dumps(record) for record in records)
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": uuid.uuid4().hex}
        receipt = self.ask("POST", f"/datasets/{dataset}/publications", content=body, headers=headers)
        for rejected in receipt["rejected"]:
            raise BadOption(f"dataset '{dataset}': record {rejected['index']} was rejected: {rejected['reason']}")
        return int(receipt["accepted"])

    def ask(self, method: str, path: str, fine: int | None = None, **request: Any) -> Json:
        """Send a request; repeat it while the cluster is busy or unavailable. Status `fine` is no error."""
        patience = time.monotonic() + PATIENCE_S
        while True:
            pause = 0.5
            try:
                answer = self._http.request(method, path, **request)
                self._met = True
                if answer.status_code not in (429, 503):
                    break
                trouble = f"answers {answer.status_code}"
                pause = float(answer.headers.get("Retry-After", pause))
            except httpx.TransportError as error:
                trouble = f"does not answer ({error}); is `newsstand cluster` running?"
            if not self._met or time.monotonic() + pause > patience:
                raise BadOption(f"{self._http.base_url}: {trouble}")
            time.sleep(pause)
        if answer.is_error and answer.status_code != fine:
            raise BadOption(f"{method} {path}: {answer.status_code} {answer.text.strip()}")
        body: Json = answer.json()
        return body


class CityBroker:
    """A broker for all people of the city: it receives notifications (PULL) and reads new results."""

    def __init__(self, name: str, cluster: Cluster, screen: Screen) -> None:
        self.notifications = 0
        self.results = 0
        self.secret = ""
        self._recipient = Recipient(name, CALLBACK)
        self._cluster = cluster
        self._screen = screen
        self._read: Counter[str] = Counter()
        """The position up to which each subscription has been read."""
        self._stopping = threading.Event()
        self._heard: queue.Queue[Json] = queue.Queue()

    def hear(self, signature: str, body: bytes) -> bool:
        """Accept a signed notification; read the results later, so that the cluster does not wait."""
        try:
            verify(self.secret, self._recipient, signature, body, time.time())
        except BadSignature as error:
            self._screen.line(f"a notification with a bad signature: {error}")
            return False
        self._heard.put(json.loads(body or b"{}"))
        return True

    def read_on(self) -> None:
        """Read the streams of notifications, one after the other, until `stop`."""
        try:
            while not self._stopping.is_set():
                self._read_one(self._heard.get())
        except NewsstandError as error:
            if not self._stopping.is_set():
                self._screen.line(f"no more results are read: {error}")

    def stop(self) -> None:
        """Stop after the stream that is being read."""
        self._stopping.set()
        self._heard.put({})

    def _read_one(self, notification: Json) -> None:
        streams = notification.get("streams", [])
        if not streams:
            return
        found = [payload for stream in streams for payload in self._new_in(stream)]
        self.notifications += 1
        self.results += len(found)
        if found:
            channel = notification["channel"] or "while we were away"
            found_text = f"{channel}: {len(found)} new results in {len(streams)} streams"
            self._screen.line(f"{found_text}, such as “{found[-1]['text'][:50]} …”")

    def _new_in(self, stream: Json) -> Iterator[Json]:
        """Return the unread results of a stream; none after a repeated notification."""
        name, position = stream["subscription"], stream["position"]
        while self._read[name] < position and not self._stopping.is_set():
            question = {"after": self._read[name], "until": position}
            page = self._cluster.ask("GET", f"/subscriptions/{name}/results", fine=410, params=question)
            if "results" not in page:  # Older results were removed: go on with the first one that is left.
                self._read[name] = page["earliest"] - 1
                continue
            yield from (result["payload"] for result in page["results"])
            self._read[name] = page["results"][-1]["position"] if page["results"] else position


@contextmanager
def broker_of(city: City, cluster: Cluster, screen: Screen) -> Iterator[CityBroker]:
    """Register a broker with all subscriptions of the city; remove it when the block ends."""
    name = f"city-{city.seed}"
    broker = CityBroker(name, cluster, screen)

    class Callback(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            taken = broker.hear(self.headers.get("Newsstand-Signature", ""), body)
            self.send_response(200 if taken else 401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing: the terminal shows the city."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Callback) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # A secret is returned once, when a broker is created: remove a broker that an earlier play left behind.
        cluster.ask("DELETE", f"/brokers/{name}", fine=404)
        callback = f"http://127.0.0.1:{server.server_port}{CALLBACK}"
        broker.secret = str(cluster.ask("PUT", f"/brokers/{name}", json={"callback": callback})["secret"])
        merged = city.merged()
        wanted = [
            {"channel": channel, "values": dict(values), "frontends": frontends}
            for (channel, values), frontends in merged.items()
        ]
        cluster.ask("POST", f"/brokers/{name}/subscriptions", json=wanted)
        screen.line(f"{sum(merged.values()):,} subscriptions, merged into {len(merged):,} of broker {name}")
        reading = threading.Thread(target=broker.read_on, daemon=True)
        reading.start()
        try:
            yield broker
        finally:
            broker.stop()
            reading.join()
            cluster.ask("DELETE", f"/brokers/{name}", fine=404)
            server.shutdown()


class Screen:
    """Lines, and below them a status: updated continuously on a terminal, printed every 10 s elsewhere."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._status = ""
        self._live = sys.stdout.isatty()
        self._written = -10.0

    def line(self, text: str) -> None:
        with self._lock:
            if self._live:
                print(f"\r\x1b[K{text}\n{self._status}", end="", flush=True)
            else:
                print(text, flush=True)

    def status(self, text: str) -> None:
        with self._lock:
            self._status = text
            if self._live:
                print(f"\r\x1b[K{text}", end="", flush=True)
            elif time.monotonic() - self._written >= 10:
                self._written = time.monotonic()
                print(text, flush=True)

    def close(self) -> None:
        """Leave the last status in place."""
        with self._lock:
            if self._status:
                print("" if self._live else self._status, flush=True)


def read_address(data: Path) -> str:
    """Return the address of the cluster of a data folder."""
    try:
        return (data / "address").read_text().strip()
    except OSError as error:
        raise BadOption(f"{data / 'address'}: is not there; start `newsstand cluster`, or pass --url") from error


def clock(seconds: float) -> str:
    """Return a time as hours, minutes and seconds."""
    return f"{int(seconds) // 3600:02d}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"


def positive(text: str) -> float:
    """Return a number greater than zero; raise an error of the option otherwise."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description="Play a day in the city against a running data cluster.")
    parser.add_argument("--app", type=Path, default=here, help="the app folder (default: where this program lies)")
    parser.add_argument("--data", type=Path, help="the cluster's data folder (default: `data` in the app folder)")
    parser.add_argument("--url", help="the cluster's address (default: from the data folder)")
    parser.add_argument("--token-file", type=Path, help="a file with a token (default: from the data folder)")
    parser.add_argument("--broker", action="store_true", help="also subscribe, be notified and read the results")
    parser.add_argument("--rate", type=positive, default=1.0, help="how fast time passes in the city (default: 1)")
    parser.add_argument("--every", type=positive, default=10.0, help="seconds between reports (default: 10)")
    parser.add_argument("--seconds", type=positive, help="stop after this many seconds (default: at Ctrl-C)")
    parser.add_argument("--seed", type=int, default=2018, help="another seed, another city (default: 2018)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
