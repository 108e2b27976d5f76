"""Parts of a platform are known by the certificates that they were configured with."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from newsstand.platform.parts import Part
from newsstand.platform.pinning import trusting_only
from newsstand.platform.supervisor import Supervisor, Watched

Made = Callable[[str], Path]


@contextmanager
def serving(certificate: Path) -> Iterator[str]:
    """A server that is ready."""

    class Ready(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Ready) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"https://127.0.0.1:{server.server_port}"
        server.shutdown()


async def is_part_ready(url: str, certificate: Path | None) -> tuple[bool, str]:
    part = Watched(Part("coordinator", (), url, certificate=certificate))
    ready = await Supervisor([], lambda _: None, lambda _: None)._is_ready(part)
    return ready, part.unreached


def test_a_part_with_another_certificate_is_not_the_part(made: Made) -> None:
    mine, other = made("mine.example"), made("other.example")
    with serving(mine) as url:
        assert asyncio.run(is_part_ready(url, mine)) == (True, "it answers 200")
        for wrong in (other, None):
            ready, why = asyncio.run(is_part_ready(url, wrong))
            assert not ready
            assert "CERTIFICATE_VERIFY_FAILED" in why
    ready, why = asyncio.run(is_part_ready(url, mine.with_name("missing.pem")))
    assert (ready, "missing.pem" in why) == (False, True)


def test_a_certificate_is_good_under_any_name(made: Made) -> None:
    certificate = made("public.example")
    with serving(certificate) as url, httpx.Client(verify=trusting_only(certificate)) as client:
        assert client.get(url.replace("127.0.0.1", "localhost")).status_code == 200
