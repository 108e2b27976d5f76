"""Parts of a platform know each other by their configured certificates."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from newsstand.errors import BadOption
from newsstand.platform.data_folder import PlatformFolder
from newsstand.platform.lifecycle import RegistrationLimits, assign_storages
from newsstand.platform.supervisor import trusting_only, why_not_ready

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


def test_readiness_requires_configured_certificate(made: Made) -> None:
    mine, other = made("mine.example"), made("other.example")
    with serving(mine) as url:
        assert asyncio.run(why_not_ready(url, mine)) is None
        for wrong in (other, None):
            assert "CERTIFICATE_VERIFY_FAILED" in str(asyncio.run(why_not_ready(url, wrong)))
    assert "missing.pem" in str(asyncio.run(why_not_ready(url, mine.with_name("missing.pem"))))


def test_certificate_is_valid_under_any_name(made: Made) -> None:
    certificate = made("public.example")
    with serving(certificate) as url, httpx.Client(verify=trusting_only(certificate)) as client:
        assert client.get(url.replace("127.0.0.1", "localhost")).status_code == 200


def test_operator_token_is_passed_only_to_coordinator(made: Made, tmp_path: Path) -> None:
    folder = PlatformFolder(tmp_path)
    folder.prepare([])
    mine, other = made("mine.example"), made("other.example")
    limits = RegistrationLimits(timeout_s=0.2)
    with serving(other) as url, pytest.raises(BadOption, match="CERTIFICATE_VERIFY_FAILED"):
        asyncio.run(assign_storages(url, trusting_only(mine), folder, {"news": ["edge"]}, limits))
