"""A broker that receives notifications on loopback, and can fail on request."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from newsstand.auth.signing import Recipient, verify_head


class Receiver:
    """A recorder of messages, in order. `mood` is answer, fail, hang or close.

    It answers with what `reply` makes of a message, or without a body if there is no `reply`.
    """

    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.mood = "answer"
        self.secret = ""
        self.reply: Callable[[dict[str, Any]], bytes] | None = None
        self.deliveries: list[int] = []
        """The number of each."""
        self.received: list[dict[str, object]] = []
        self.positions: dict[str, int] = {}
        self.regressions: list[str] = []
        self.url = ""

    def take(self, body: bytes, signature: str) -> bytes | None:
        """The body of the answer to a message."""
        recipient = Recipient(self.broker, "/notify")
        head = verify_head(self.secret, recipient, signature, time.time(), tolerance_s=7200)
        head.check(body)
        self.deliveries.append(head.delivery_id)
        message = json.loads(body)
        self.received.append(message)
        for stream in message.get("streams", []):
            name, position = stream["subscription"], stream["position"]
            if position < self.positions.get(name, 0):
                self.regressions.append(f"{name}: {position} after {self.positions[name]}")
            self.positions[name] = position
        return None if self.reply is None else self.reply(message)


@contextmanager
def receiving(port: int = 0, broker: str = "edge") -> Iterator[Receiver]:
    """A receiver that listens for the length of a `with` block, on a free port if none is given."""
    receiver = Receiver(broker)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if receiver.mood == "hang":
                time.sleep(3)
            if receiver.mood in ("hang", "close"):
                self.close_connection = True
                return
            content = None
            if receiver.mood == "answer":
                content = receiver.take(body, self.headers["Newsstand-Signature"])
            answered = 204 if content is None else 200
            self.send_response(answered if receiver.mood == "answer" else 500)
            if content is not None:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

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
