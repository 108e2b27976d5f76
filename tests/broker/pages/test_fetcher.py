"""Pages on servers outside the platform: allowed servers, what they see, and which responses are accepted."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from support.broker.calls import login
from support.broker.press import ADMIN, Press
from support.broker.process import start_broker, wait_ready

from newsstand.broker.cluster_client.client import ClusterUnavailable
from newsstand.broker.pages.content import read_content
from newsstand.broker.pages.fetcher import FetchLimits, PageFetcher, PageRejected
from newsstand.broker.pages.hosts import RESOLVERS, AllowedHost, PageHosts, is_public
from newsstand.broker.settings import BrokerSettings
from newsstand.errors import BadInput, BadOption

LARGEST_PAGE = 100_000
LIMITS = FetchLimits()
Answer = Callable[[BaseHTTPRequestHandler], None]


class Site:
    """A server outside the platform; `asked` lists its requests."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.answers: dict[str, Answer] = {}
        self.active = self.most = 0
        self.released = threading.Event()
        self._lock = threading.Lock()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                site.answers[self.path](self)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer((address, 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://{address}:{self.port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def page(self, path: str, content: bytes, **headers: str) -> str:
        self.answers[path] = lambda handler: reply(handler, 200, content, **headers)
        return self.url + path

    def redirect(self, path: str, location: str) -> str:
        self.answers[path] = lambda handler: reply(handler, 302, b"", Location=location)
        return self.url + path

    def blocked(self, path: str) -> str:
        """Return a page when `released` is set."""

        def answer(handler: BaseHTTPRequestHandler) -> None:
            with self._lock:
                self.active += 1
                self.most = max(self.most, self.active)
            self.released.wait(60)
            with self._lock:
                self.active -= 1
            reply(handler, 200, b"slow")

        self.answers[path] = answer
        return self.url + path


def reply(handler: BaseHTTPRequestHandler, status: int, content: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


@pytest.fixture
def site() -> Iterator[Site]:
    with closing(Site()) as made:
        yield made


@pytest.fixture(scope="module")
def ann(press: Press, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A subscriber of a broker that may fetch pages from this machine."""
    folder = tmp_path_factory.mktemp("allowing")
    config = folder / "broker.toml"
    config.write_text(f'[broker]\nlargest_page = {LARGEST_PAGE}\npages_allow = ["127.0.0.0/8", "::1"]\n')
    broker = start_broker(folder, press.url, "allowing", 0, "--config", config)
    try:
        wait_ready(broker.url)
        with closing(login(broker.url, "ann")) as client:
            yield client
    finally:
        assert broker.stop() == 0


def get(press: Press, client: httpx.Client, url: str) -> httpx.Response:
    return client.get(f"/pages/{press.cluster.pages.link(url, 10).id}")


def refused(answer: httpx.Response, reason: str) -> None:
    assert answer.status_code == 503, (answer.status_code, answer.content[:200])
    assert reason in answer.json()["error"]


# Who may be asked


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.0.0.2", "127.1", "0x7f000001", "[::ffff:127.0.0.1]"]
)
def test_fetch_from_cluster_rejected_even_if_allowed(press: Press, ann: httpx.Client, host: str) -> None:
    port = press.url.rpartition(":")[2]
    refused(get(press, ann, f"http://{host}:{port}/channels"), "is a server of the platform")


def test_fetch_from_broker_itself_rejected(press: Press, ann: httpx.Client) -> None:
    refused(get(press, ann, f"{str(ann.base_url).rstrip('/')}/healthz"), "is a server of the platform")


def test_fetch_redirected_to_cluster_rejected(press: Press, ann: httpx.Client, site: Site) -> None:
    refused(get(press, ann, site.redirect("/a", f"{press.url}/channels")), "is a server of the platform")
    assert [path for path, _ in site.asked] == ["/a"]


def test_fetch_from_private_address_rejected_unless_allowed(press: Press, broker_url: str, site: Site) -> None:
    with closing(login(broker_url, "eve")) as eve:
        refused(get(press, eve, site.page("/a", b"private")), "has no public address; to allow it, list it")
    assert site.asked == []


@pytest.mark.parametrize("url", ["http://xn--a:{port}/a", "http://127.0.0.1:0/"])
def test_fetch_of_invalid_url_rejected(press: Press, ann: httpx.Client, site: Site, url: str) -> None:
    assert get(press, ann, url.format(port=site.port)).status_code == 503
    assert site.asked == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://user:word@127.0.0.1:{port}/b"])
def test_fetch_redirected_to_unsafe_url_rejected(press: Press, ann: httpx.Client, site: Site, url: str) -> None:
    redirect = site.redirect("/a", url.format(port=site.port))
    refused(get(press, ann, redirect), "must be an http:// or https:// address without user and password")
    assert [path for path, _ in site.asked] == ["/a"]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "127.0.0.1",
            "10.0.0.1",
            "100.64.0.1",
            "169.254.169.254",
            "192.168.1.1",
            "0.0.0.0",
            "224.0.0.1",
            "240.0.0.1",
        ),
        *("::1", "::", "fe80::1", "fec0::1", "fd00::1", "ff02::1", "::ffff:10.0.0.1", "::127.0.0.1"),
        *("64:ff9b::a00:1", "64:ff9b:1::808:808", "2002:a00:1::", "2001::7f00:1"),
    ],
)
def test_private_address_is_not_public(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", ["8.8.8.8", "2600::1", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_address_is_public(text: str) -> None:
    assert is_public(ip_address(text))


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Replace name resolution by these answers, in order; return the hosts that are looked up."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(0, 0, 0, "", (one, port)) for one in answers[len(asked) - 1]]

    monkeypatch.setattr("newsstand.broker.pages.hosts.socket.getaddrinfo", getaddrinfo)
    return asked


async def fetch(fetcher: PageFetcher, url: str) -> bytes:
    try:
        async with fetcher.open(url, {}) as response:
            return (await read_content(response, LARGEST_PAGE)).data
    finally:
        await fetcher.close()


def test_fetch_connects_to_the_checked_address(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.page("/a", b"rebound")
    asked = resolving(monkeypatch, ["127.0.0.1"], ["127.0.0.9"])
    url = f"http://pages.example:{site.port}/a"
    fetcher = PageFetcher(PageHosts(["pages.example"]), verify=False)
    assert asyncio.run(fetch(fetcher, url)) == b"rebound"
    assert asked == ["pages.example"]
    assert site.asked[0][1]["host"] == f"pages.example:{site.port}"


def test_fetch_rejected_for_one_private_address(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["8.8.8.8", "127.0.0.1"])
    with pytest.raises(PageRejected, match="has no public address"):
        asyncio.run(fetch(PageFetcher(PageHosts(), verify=False), "http://pages.example/a"))


def test_platform_server_recognized_by_address(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["10.1.2.3"], ["10.1.2.3"])
    hosts = PageHosts(["10.0.0.0/8", "pages.example"], ["http://cluster.example:8780"])
    with pytest.raises(BadInput, match="is a server of the platform"):
        asyncio.run(hosts.addresses("pages.example", 8780))


@pytest.mark.parametrize(
    ("entry", "port", "allowed"),
    [
        ("pages.example", 80, True),
        ("PAGES.example:81", 81, True),
        ("pages.example:81", 80, False),
        ("other.example", 80, False),
        ("10.1.2.3", 80, True),
        ("10.1.2.3:80", 80, True),
        ("10.1.2.3:80", 81, False),
        ("10.0.0.0/8", 80, True),
        ("10.2.0.0/16", 80, False),
        ("[fd00::1]:80", 80, False),
        ("0.0.0.0/0", 80, True),
    ],
)
def test_allowed_host_includes(entry: str, port: int, allowed: bool) -> None:
    assert AllowedHost.parse(entry).includes("pages.example", ip_address("10.1.2.3"), port) == allowed


@pytest.mark.parametrize(
    "entry", ["", "a b", "http://a", "a/b", "a:", "a:x", "a:0", "a:70000", "10.1.2.3/8", "u@a", "[::1"]
)
def test_allowed_host_rejected_when_malformed(entry: str, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"pages_allow: .* is none of HOST, HOST:PORT and a network"):
        BrokerSettings(name="edge", cluster="http://127.0.0.1:1", data=tmp_path, pages_allow=[entry])


def test_platform_server_recognized_behind_nat64(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["64:ff9b::808:808"], ["8.8.8.8"])
    with pytest.raises(BadInput, match="is a server of the platform"):
        asyncio.run(PageHosts([], ["http://cluster.example:80"]).addresses("pages.example", 80))


def test_address_with_zone_rejected_even_if_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["fe80::1%lo"])
    with pytest.raises(BadInput, match="has no public address"):
        asyncio.run(PageHosts(["fe80::/10"]).addresses("fe80::1%lo", 80))


@pytest.mark.parametrize(
    "location",
    [
        *("http://xn--a/", "http://[::1", "//", "http://", "http:///a", "gopher://a/", "http://a:99999/"),
        *("http://\x80/", "http://%00/", "http://u:p@127.0.0.1/", "javascript:1", "http://[fe80::1%25lo]/"),
        *("\x00", "http://a b/"),
    ],
)
def test_fetch_redirected_to_invalid_url_rejected(site: Site, location: str) -> None:
    fetcher = PageFetcher(PageHosts(["127.0.0.1"]), verify=False)
    with pytest.raises(ClusterUnavailable):
        asyncio.run(fetch(fetcher, site.redirect("/a", location)))


# What they see


def test_fetch_sends_no_token_or_client_headers(press: Press, ann: httpx.Client, site: Site) -> None:
    site.page("/b", b"content", Set_Cookie="a=b", Content_Type="text/html")
    answer = get(press, ann, site.redirect("/a", "/b"))
    assert (answer.content, answer.headers["Content-Type"]) == (b"content", "text/html")
    assert [path for path, _ in site.asked] == ["/a", "/b"]
    for _, headers in site.asked:
        assert headers.pop("connection") == "close"
        assert headers.keys() <= {"host", "accept", "accept-encoding"}
        assert headers["accept-encoding"] == "identity"
        assert ADMIN not in str(headers)


def test_fetch_follows_limited_redirects(press: Press, ann: httpx.Client, site: Site) -> None:
    for number in range(LIMITS.redirects + 1):
        site.redirect(f"/{number}", f"/{number + 1}")
    site.page(f"/{LIMITS.redirects + 1}", b"the end")
    refused(get(press, ann, f"{site.url}/0"), "more than 5 redirects")
    assert get(press, ann, f"{site.url}/1").content == b"the end"


# What is accepted


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip", "identity, gzip", "br", "x-unknown"])
def test_fetch_of_compressed_page_rejected(press: Press, ann: httpx.Client, site: Site, encoding: str) -> None:
    url = site.page("/a", gzip.compress(b"0" * 50_000), Content_Encoding=encoding)
    refused(get(press, ann, url), f"Content-Encoding '{encoding}'")


def test_fetch_of_compressed_page_rejected_before_its_body(press: Press, ann: httpx.Client, site: Site) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 50000\r\n\r\n")
        site.released.wait(60)

    site.answers["/a"] = answer
    refused(get(press, ann, site.url + "/a"), "Content-Encoding 'gzip'")


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip"])
def test_fetch_never_decompresses_page(site: Site, encoding: str) -> None:
    content = bytes(50_000_000)
    for _ in encoding.split(","):
        content = gzip.compress(content)
    assert len(content) < LARGEST_PAGE
    url = site.page("/a", content, Content_Encoding=encoding)
    assert asyncio.run(fetch(PageFetcher(PageHosts(["127.0.0.1"]), verify=False), url)) == content


def test_fetch_streams_page_too_large_for_memory(press: Press, ann: httpx.Client, site: Site) -> None:
    content = b"0123456789" * LARGEST_PAGE
    assert get(press, ann, site.page("/a", content)).content == content
    refused(get(press, ann, site.redirect("/b", "/gone")), "does not answer")


def test_fetch_ends_at_deadline(site: Site) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not site.released.wait(0.02):
            handler.wfile.write(b".")

    def quietly(handler: BaseHTTPRequestHandler) -> None:
        with suppress(OSError):
            drip(handler)

    site.answers["/a"] = quietly
    for path, reason in (("/a", "takes too long"), ("/b", "does not answer within")):
        site.blocked("/b")
        fetcher = PageFetcher(PageHosts(["127.0.0.1"]), verify=False, limits=FetchLimits(fetch_s=0.3))
        with pytest.raises(ClusterUnavailable, match=reason):
            asyncio.run(fetch(fetcher, site.url + path))


# How many at a time


def test_slow_host_does_not_delay_others(press: Press, ann: httpx.Client, site: Site) -> None:
    slow = [site.blocked(f"/{number}") for number in range(20)]
    with closing(Site("127.0.0.2")) as other, ThreadPoolExecutor(20) as readers:
        waiting = [readers.submit(get, press, ann, url) for url in slow]
        try:
            until = time.monotonic() + 30
            while site.active < LIMITS.per_server:
                assert time.monotonic() < until
                time.sleep(0.01)
            assert get(press, ann, other.page("/a", b"quick")).content == b"quick"
        finally:
            site.released.set()
        assert {one.result().content for one in waiting} == {b"slow"}
    assert site.most == LIMITS.per_server


def test_slow_server_with_many_names_takes_no_slots_of_others(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.blocked("/a")

    def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", ("127.0.0.2" if host == "quick.example" else "127.0.0.1", port))]

    monkeypatch.setattr("newsstand.broker.pages.hosts.socket.getaddrinfo", getaddrinfo)

    async def story(quick: str) -> bytes:
        fetcher = PageFetcher(PageHosts(["127.0.0.0/8"]), verify=False)
        names = [f"http://{number}.slow.example:{site.port}/a" for number in range(100)]
        waiting = [asyncio.create_task(read(fetcher, name)) for name in names]
        async with asyncio.timeout(30):
            while site.active < LIMITS.per_server:
                await asyncio.sleep(0.01)
            content = await read(fetcher, quick)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await fetcher.close()
        return content

    async def read(fetcher: PageFetcher, url: str) -> bytes:
        async with fetcher.open(url, {}) as response:
            return (await read_content(response, LARGEST_PAGE)).data

    with closing(Site("127.0.0.2")) as other:
        other.page("/a", b"quick")
        assert asyncio.run(story(f"http://quick.example:{other.port}/a")) == b"quick"
    assert site.most == LIMITS.per_server


def test_slow_name_server_takes_no_lookups_of_others(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.page("/a", b"quick")
    slow: list[str] = []

    def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        if host.endswith("slow.example"):
            slow.append(host)
            site.released.wait(60)
        return [(0, 0, 0, "", ("127.0.0.1", port))]

    monkeypatch.setattr("newsstand.broker.pages.hosts.socket.getaddrinfo", getaddrinfo)

    async def story() -> bytes:
        fetcher = PageFetcher(PageHosts(["127.0.0.0/8"]), verify=False)
        names = [f"http://{number}.slow.example:{site.port}/a" for number in range(2 * RESOLVERS)]
        waiting = [asyncio.create_task(read(fetcher, name)) for name in names]
        try:
            async with asyncio.timeout(30):
                while len(slow) < LIMITS.per_server:
                    await asyncio.sleep(0.01)
                return await read(fetcher, f"http://quick.example:{site.port}/a")
        finally:
            for one in waiting:
                one.cancel()
            site.released.set()
            await asyncio.gather(*waiting, return_exceptions=True)
            await fetcher.close()

    async def read(fetcher: PageFetcher, url: str) -> bytes:
        async with fetcher.open(url, {}) as response:
            return (await read_content(response, LARGEST_PAGE)).data

    assert asyncio.run(story()) == b"quick"
    assert len(slow) == LIMITS.per_server


def test_fetch_ends_when_response_trickles(site: Site) -> None:
    def drip(handler: BaseHTTPRequestHandler, first: bytes, piece: bytes) -> None:
        with suppress(OSError):
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + first)
            while not site.released.wait(0.02):
                handler.wfile.write(piece)

    site.answers["/head"] = lambda handler: drip(handler, b"", b"X: y\r\n")
    site.answers["/body"] = lambda handler: drip(handler, b"\r\n", b".")

    async def given_up(path: str) -> None:
        fetcher = PageFetcher(
            PageHosts(["127.0.0.1"]), verify=False, limits=FetchLimits(head_s=0.3, patience_s=0.3)
        )
        async with asyncio.timeout(30):
            await fetch(fetcher, site.url + path)

    for path, reason in (("/head", "does not answer within"), ("/body", "takes too long")):
        with pytest.raises(ClusterUnavailable, match=reason):
            asyncio.run(given_up(path))
