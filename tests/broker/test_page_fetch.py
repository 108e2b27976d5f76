"""Pages that other servers hold: who may be asked, what they see, and what of their answers is accepted."""

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
from broker_process import start_broker, wait_ready
from press import ADMIN, Press
from test_broker_api import login

from newsstand.broker.page_content import content_of
from newsstand.broker.page_fetcher import PER_SERVER, REDIRECTS, PageFetcher, PageRefused, ServerSlots
from newsstand.broker.page_hosts import AllowedHost, PageHosts, is_public
from newsstand.broker.settings import BrokerSettings
from newsstand.broker.upstream import Away
from newsstand.errors import BadInput, BadOption

LARGEST_PAGE = 100_000
Answer = Callable[[BaseHTTPRequestHandler], None]


class Site:
    """A server outside the platform; `asked` are the requests that it got."""

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
        """A page that comes when `released` is set."""

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
    return client.get(f"/pages/{press.pages.point(url, 10).id}")


def refused(answer: httpx.Response, reason: str) -> None:
    assert answer.status_code == 503, (answer.status_code, answer.content[:200])
    assert reason in answer.json()["error"]


# Who may be asked


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.0.0.2", "127.1", "0x7f000001", "[::ffff:127.0.0.1]"]
)
def test_the_cluster_is_refused_also_when_it_is_listed(press: Press, ann: httpx.Client, host: str) -> None:
    port = press.url.rpartition(":")[2]
    refused(get(press, ann, f"http://{host}:{port}/channels"), "is a server of the platform")


def test_the_broker_itself_is_refused(press: Press, ann: httpx.Client) -> None:
    refused(get(press, ann, f"{str(ann.base_url).rstrip('/')}/healthz"), "is a server of the platform")


def test_a_redirect_to_the_cluster_is_refused(press: Press, ann: httpx.Client, site: Site) -> None:
    refused(get(press, ann, site.redirect("/a", f"{press.url}/channels")), "is a server of the platform")
    assert [path for path, _ in site.asked] == ["/a"]


def test_a_private_address_is_refused_unless_it_is_listed(press: Press, broker_url: str, site: Site) -> None:
    with closing(login(broker_url, "eve")) as eve:
        refused(get(press, eve, site.page("/a", b"private")), "has no public address; to allow it, list it")
    assert site.asked == []


@pytest.mark.parametrize(
    "url", ["http://user:word@127.0.0.1:{port}/a", "http://xn--a:{port}/a", "http://127.0.0.1:0/"]
)
def test_a_url_that_is_none(press: Press, ann: httpx.Client, site: Site, url: str) -> None:
    assert get(press, ann, url.format(port=site.port)).status_code == 503
    assert site.asked == []


def test_a_redirect_to_another_scheme_is_refused(press: Press, ann: httpx.Client, site: Site) -> None:
    refused(get(press, ann, site.redirect("/a", "file:///etc/passwd")), "must be an http:// or https:// address")


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
def test_an_address_that_is_not_public(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", ["8.8.8.8", "2600::1", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_an_address_that_is_public(text: str) -> None:
    assert is_public(ip_address(text))


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Let name servers answer this, one after the other; the hosts that they were asked for."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(0, 0, 0, "", (one, port)) for one in answers[len(asked) - 1]]

    monkeypatch.setattr("newsstand.broker.page_hosts.socket.getaddrinfo", getaddrinfo)
    return asked


async def fetch(fetcher: PageFetcher, url: str) -> bytes:
    try:
        async with fetcher.open(url, {}) as response:
            return (await content_of(response, LARGEST_PAGE)).data
    finally:
        await fetcher.aclose()


def test_the_address_that_was_checked_is_the_one_that_is_asked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.page("/a", b"rebound")
    asked = resolving(monkeypatch, ["127.0.0.1"], ["127.0.0.9"])
    url = f"http://pages.example:{site.port}/a"
    fetcher = PageFetcher(PageHosts(["pages.example"]), verify=False)
    assert asyncio.run(fetch(fetcher, url)) == b"rebound"
    assert asked == ["pages.example"]
    assert site.asked[0][1]["host"] == f"pages.example:{site.port}"


def test_one_private_address_among_public_ones_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["8.8.8.8", "127.0.0.1"])
    with pytest.raises(PageRefused, match="has no public address"):
        asyncio.run(fetch(PageFetcher(PageHosts(), verify=False), "http://pages.example/a"))


def test_the_cluster_is_known_by_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_an_entry_of_the_list(entry: str, port: int, allowed: bool) -> None:
    assert AllowedHost.parse(entry).includes("pages.example", ip_address("10.1.2.3"), port) == allowed


@pytest.mark.parametrize(
    "entry", ["", "a b", "http://a", "a/b", "a:", "a:x", "a:0", "a:70000", "10.1.2.3/8", "u@a", "[::1"]
)
def test_an_entry_that_is_none(entry: str, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"pages_allow: .* is none of HOST, HOST:PORT and a network"):
        BrokerSettings(name="edge", cluster="http://127.0.0.1:1", data=tmp_path, pages_allow=[entry])


def test_the_cluster_is_known_behind_a_translator_of_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["64:ff9b::808:808"], ["8.8.8.8"])
    with pytest.raises(BadInput, match="is a server of the platform"):
        asyncio.run(PageHosts([], ["http://cluster.example:80"]).addresses("pages.example", 80))


def test_an_address_with_a_zone_is_refused_also_when_it_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_redirect_to_what_is_no_address_is_refused(site: Site, location: str) -> None:
    fetcher = PageFetcher(PageHosts(["127.0.0.1"]), verify=False)
    with pytest.raises(Away):
        asyncio.run(fetch(fetcher, site.redirect("/a", location)))


# What they see


def test_another_server_sees_no_token_and_not_who_reads(press: Press, ann: httpx.Client, site: Site) -> None:
    site.page("/b", b"content", Set_Cookie="a=b", Content_Type="text/html")
    answer = get(press, ann, site.redirect("/a", "/b"))
    assert (answer.content, answer.headers["Content-Type"]) == (b"content", "text/html")
    assert [path for path, _ in site.asked] == ["/a", "/b"]
    for _, headers in site.asked:
        assert headers.keys() <= {"host", "accept", "accept-encoding"}
        assert headers["accept-encoding"] == "identity"
        assert ADMIN not in str(headers)


def test_so_many_redirects_and_no_more(press: Press, ann: httpx.Client, site: Site) -> None:
    for number in range(REDIRECTS + 1):
        site.redirect(f"/{number}", f"/{number + 1}")
    site.page(f"/{REDIRECTS + 1}", b"the end")
    refused(get(press, ann, f"{site.url}/0"), "more than 5 redirects")
    assert get(press, ann, f"{site.url}/1").content == b"the end"


# What is accepted


@pytest.mark.parametrize("encoding", ["gzip", "identity, gzip", "br", "x-unknown"])
def test_a_compressed_page_is_refused(press: Press, ann: httpx.Client, site: Site, encoding: str) -> None:
    url = site.page("/a", gzip.compress(b"0" * 50_000), Content_Encoding=encoding)
    refused(get(press, ann, url), f"Content-Encoding '{encoding}'")


def test_a_page_too_large_for_memory_is_passed_on(press: Press, ann: httpx.Client, site: Site) -> None:
    content = b"0123456789" * LARGEST_PAGE
    assert get(press, ann, site.page("/a", content)).content == content
    refused(get(press, ann, site.redirect("/b", "/gone")), "does not answer")


def test_a_server_that_never_ends_meets_the_deadline(site: Site) -> None:
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
        fetcher = PageFetcher(PageHosts(["127.0.0.1"]), verify=False, fetch_s=0.3)
        with pytest.raises(Away, match=reason):
            asyncio.run(fetch(fetcher, site.url + path))


# How many at a time


def test_a_slow_host_does_not_keep_pages_of_others_waiting(press: Press, ann: httpx.Client, site: Site) -> None:
    slow = [site.blocked(f"/{number}") for number in range(20)]
    with closing(Site("127.0.0.2")) as other, ThreadPoolExecutor(20) as readers:
        waiting = [readers.submit(get, press, ann, url) for url in slow]
        try:
            until = time.monotonic() + 30
            while site.active < PER_SERVER:
                assert time.monotonic() < until
                time.sleep(0.01)
            assert get(press, ann, other.page("/a", b"quick")).content == b"quick"
        finally:
            site.released.set()
        assert {one.result().content for one in waiting} == {b"slow"}
    assert site.most == PER_SERVER


def test_a_slow_server_with_many_names_takes_no_slots_of_others(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.blocked("/a")

    def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", ("127.0.0.2" if host == "quick.example" else "127.0.0.1", port))]

    monkeypatch.setattr("newsstand.broker.page_hosts.socket.getaddrinfo", getaddrinfo)

    async def story(quick: str) -> bytes:
        fetcher = PageFetcher(PageHosts(["127.0.0.0/8"]), verify=False)
        names = [f"http://{number}.slow.example:{site.port}/a" for number in range(100)]
        waiting = [asyncio.create_task(read(fetcher, name)) for name in names]
        async with asyncio.timeout(30):
            while site.active < PER_SERVER:
                await asyncio.sleep(0.01)
            content = await read(fetcher, quick)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await fetcher.aclose()
        return content

    async def read(fetcher: PageFetcher, url: str) -> bytes:
        async with fetcher.open(url, {}) as response:
            return (await content_of(response, LARGEST_PAGE)).data

    with closing(Site("127.0.0.2")) as other:
        other.page("/a", b"quick")
        assert asyncio.run(story(f"http://quick.example:{other.port}/a")) == b"quick"
    assert site.most == PER_SERVER


def test_a_page_or_head_that_trickles_is_given_up(site: Site) -> None:
    def drip(handler: BaseHTTPRequestHandler, first: bytes, piece: bytes) -> None:
        with suppress(OSError):
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + first)
            while not site.released.wait(0.02):
                handler.wfile.write(piece)

    site.answers["/head"] = lambda handler: drip(handler, b"", b"X: y\r\n")
    site.answers["/body"] = lambda handler: drip(handler, b"\r\n", b".")

    async def given_up(path: str) -> None:
        fetcher = PageFetcher(PageHosts(["127.0.0.1"]), verify=False, head_s=0.3, patience_s=0.3)
        async with asyncio.timeout(30):
            await fetch(fetcher, site.url + path)

    for path, reason in (("/head", "does not answer within"), ("/body", "takes too long")):
        with pytest.raises(Away, match=reason):
            asyncio.run(given_up(path))


def test_slots_are_forgotten_when_nobody_holds_them() -> None:
    async def story() -> None:
        slots = ServerSlots(per_server=1)

        async def hold() -> None:
            async with slots.hold("a"):
                await asyncio.sleep(0)

        holders = [asyncio.create_task(hold()) for _ in range(3)]
        await asyncio.sleep(0)
        holders[1].cancel()
        await asyncio.gather(*holders, return_exceptions=True)
        assert not slots._servers

    asyncio.run(story())
