"""A broker's side of notifications: a small HTTP server on loopback that can be told to misbehave."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from newsstand.signing import verify


class Receiver:
    """Keeps what it was told, in order. `mood` is answer, fail, hang or close."""

    def __init__(self) -> None:
        self.mood = "answer"
        self.secret = ""
        self.told: list[dict[str, object]] = []
        self.positions: dict[str, int] = {}
        self.went_back: list[str] = []
        self.url = ""

    def take(self, body: bytes, signature: str) -> None:
        verify(self.secret, signature, body, now=int(time.time()), tolerance_s=7200)
        message = json.loads(body)
        self.told.append(message)
        for stream in message.get("streams", []):
            name, position = stream["subscription"], stream["position"]
            if position < self.positions.get(name, 0):
                self.went_back.append(f"{name}: {position} after {self.positions[name]}")
            self.positions[name] = position


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """A receiver that listens for the length of a `with` block, on a free port if none is given."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if receiver.mood == "hang":
                time.sleep(3)
            if receiver.mood in ("hang", "close"):
                self.close_connection = True
                return
            if receiver.mood == "answer":
                receiver.take(body, self.headers["Newsstand-Signature"])
            self.send_response(204 if receiver.mood == "answer" else 500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_port}/notify"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
