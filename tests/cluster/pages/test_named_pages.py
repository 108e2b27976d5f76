"""Named pages: names, storage through changes and crashes, and the HTTP API."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cluster.standin import ApiClient, StandIn, serving
from support.profiles import examples

from newsstand.auth.api_tokens import new_token
from newsstand.cluster.pages.store import NamedPageInfo, NamedPages, require_name
from newsstand.config import files
from newsstand.errors import BadApp, BadInput, NoRoom, NotFound

SEGMENTS = st.text("abzAZ059._~-", min_size=1, max_size=20).filter(lambda one: one not in (".", ".."))
NAMES = st.lists(SEGMENTS, min_size=1, max_size=8).map("/".join)
SCOPES = {
    "admin": "admin",
    "gate": "publish:*",
    "one": "publish:emergencies",
    "north": "broker:north",
    "reader": "read",
}
MADE = {name: new_token(name, [scope], bytes([n]) * 32) for n, (name, scope) in enumerate(SCOPES.items(), 1)}


@pytest.fixture
def store(tmp_path: Path) -> NamedPages:
    return NamedPages(tmp_path / "named")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


# The store


def test_named_page_found_under_its_name(store: NamedPages, tmp_path: Path) -> None:
    put = store.put("news/today.html", b"<p>Hello</p>", "text/html", 1000)
    page = NamedPageInfo("news/today.html", digest(b"<p>Hello</p>"), 12, "text/html", 1000)
    assert (put.page, put.is_new, put.changed) == (page, True, True)
    for one in (store, NamedPages(tmp_path / "named")):
        assert one.find("news/today.html") == page
        assert one.read("news/today.html") == (page, b"<p>Hello</p>")


def test_put_repeated_changes_nothing(store: NamedPages) -> None:
    store.put("a", b"x", "text/plain", 1000)
    again = store.put("a", b"x", "text/plain", 2000)
    assert (again.page.modified_ms, again.is_new, again.changed) == (1000, False, False)
    other_type = store.put("a", b"x", "text/html", 3000)
    assert (other_type.page.modified_ms, other_type.page.type, other_type.changed) == (3000, "text/html", True)


def test_modified_time_rises_when_clock_goes_back(store: NamedPages) -> None:
    times = [
        store.put("a", content, "text/plain", now).page.modified_ms for now, content in ((5, b"1"), (3, b"2"))
    ]
    assert times == [5, 6]


def test_name_and_name_below_it_are_two_pages(store: NamedPages) -> None:
    for name in ("a", "a/b", "A", "a/b/c"):
        store.put(name, name.encode(), "text/plain", 1)
    assert [store.read(name)[1] for name in ("a", "a/b", "A", "a/b/c")] == [b"a", b"a/b", b"A", b"a/b/c"]


def test_dropped_page_not_found(store: NamedPages, tmp_path: Path) -> None:
    store.put("a", b"x", "text/plain", 1)
    store.drop("a")
    for one in (store, NamedPages(tmp_path / "named")):
        for ask in (one.find, one.read, one.drop):
            with pytest.raises(NotFound, match="no named page 'a'"):
                ask("a")
        assert one.list("", 10) == []
    assert store.put("a", b"x", "text/plain", 2).is_new


@settings(max_examples=examples(30))
@given(st.lists(NAMES, unique=True, max_size=12), st.integers(1, 5))
def test_list_returns_pages_in_order_of_names(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("listed")
    store = NamedPages(folder)
    for name in names:
        store.put(name, b"x", "text/plain", 1)
    for one in (store, NamedPages(folder)):
        listed: list[str] = []
        while found := one.list(listed[-1] if listed else "", limit):
            assert len(found) <= limit
            listed += [page.name for page in found]
        assert listed == sorted(names)


@given(NAMES)
def test_name_accepted_when_segments_are_valid(name: str) -> None:
    if len(name) <= 200:
        require_name(name)
    else:
        with pytest.raises(BadApp):
            require_name(name)


@given(st.one_of(st.text(max_size=8), st.text("ab./~ ", max_size=6), st.text("a", min_size=195, max_size=205)))
def test_name_limited_to_200_characters_without_parent_segments(name: str) -> None:
    good = (
        1 <= len(name) <= 200
        and set(name) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~-/")
        and not {"", ".", ".."} & set(name.split("/"))
    )
    try:
        require_name(name)
    except BadApp:
        assert not good
    else:
        assert good


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", "../a", "a/..", "./a", "a/./b", "a b", "é", "a\n", "a" * 201]
)
def test_name_rejected_by_all_methods_when_invalid(store: NamedPages, name: str) -> None:
    for ask in (store.find, store.read, store.drop, lambda name: store.put(name, b"x", "text/plain", 1)):
        with pytest.raises(BadApp, match="name: must be 1 to 200"):
            ask(name)  # type: ignore[operator]


def test_media_type_rejected_when_invalid(store: NamedPages) -> None:
    with pytest.raises(BadInput, match="media type"):
        store.put("a", b"x", "nonsense", 1)
    assert store.list("", 10) == []


def test_write_failure_leaves_previous_page(
    store: NamedPages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", b"old", "text/plain", 1)
    whole = files.os.replace

    def crash(*_: object) -> None:
        raise OSError("no such luck")

    monkeypatch.setattr(files.os, "replace", crash)
    with pytest.raises(OSError, match="no such luck"):
        store.put("a", b"new", "text/html", 2)
    monkeypatch.setattr(files.os, "replace", whole)
    for one in (store, NamedPages(tmp_path / "named")):
        page, content = one.read("a")
        assert (page.id, page.type, content) == (digest(b"old"), "text/plain", b"old")


def test_full_disk_leaves_previous_page(store: NamedPages, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("a", b"old", "text/plain", 1)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    for name in ("a", "b"):
        with pytest.raises(NoRoom, match="no space for a page"):
            store.put(name, b"new", "text/plain", 2)
    monkeypatch.undo()
    assert store.read("a")[1] == b"old"
    assert [page.name for page in store.list("", 10)] == ["a"]


WRITER = """
import sys
from pathlib import Path
from newsstand.cluster.pages.store import NamedPages
store = NamedPages(Path(sys.argv[1]))
print("ready", flush=True)
number = 0
while True:
    number += 1
    store.put("a", bytes([number % 256]) * 50_000, f"text/x{number % 256}", number)
    print(number, flush=True)
"""


def test_killed_writer_leaves_previous_or_new_page(tmp_path: Path) -> None:
    last = 0
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(5):
            line = process.stdout.readline()
            assert line, "the writer ended by itself"
        process.kill()
        last = int((line + process.stdout.read()).split()[-1])
        process.wait()
        process.stdout.close()
        page, content = NamedPages(tmp_path).read("a")
        number = content[0]
        assert content == bytes([number]) * 50_000
        assert (page.id, page.size, page.type) == (digest(content), 50_000, f"text/x{number}")
        assert number in (last % 256, (last + 1) % 256), "acknowledged pages are durable"
        assert not list(tmp_path.rglob(".*")), "unfinished files are removed"


def test_read_is_consistent_while_page_is_replaced(store: NamedPages) -> None:
    store.put("a", b"0" * 10_000, "text/x0", 1)
    done = threading.Event()

    def replace() -> None:
        for number in range(1, 60):
            store.put("a", str(number % 10).encode() * 10_000, f"text/x{number % 10}", 1)
        done.set()

    def read() -> int:
        count = 0
        while not done.is_set():
            page, content = store.read("a")
            assert page.id == digest(content)
            assert page.type == f"text/x{content[:1].decode()}"
            count += 1
        return count

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        pool.submit(replace).result(30)
        assert all(reader.result(30) for reader in readers)
    assert store.find("a").modified_ms == 60


def test_foreign_file_is_ignored(store: NamedPages, tmp_path: Path) -> None:
    store.put("a", b"x", "text/plain", 1)
    stray = tmp_path / "named" / "zz" / "stray"
    stray.parent.mkdir()
    stray.write_bytes(b"\xff\xfe")
    assert [page.name for page in NamedPages(tmp_path / "named").list("", 10)] == ["a"]
    assert stray.exists()


# Over HTTP


@pytest.fixture
def call(tmp_path: Path) -> Iterator[ApiClient]:
    with serving(StandIn(tmp_path), {name: token for name, (_, token) in MADE.items()}) as url:
        caller = ApiClient(url, MADE)
        yield caller
        caller.client.close()


HTML = {"Content-Type": "text/html; charset=utf-8"}


def test_named_page_put_read_listed_and_dropped(call: ApiClient) -> None:
    before = time.time_ns() // 1_000_000
    made = call("gate", "PUT", "/named/news/today.html", 201, content=b"<p>1</p>", headers=HTML).json()
    assert before <= made["modified_ms"] <= time.time_ns() // 1_000_000
    assert made == {
        "name": "news/today.html",
        "id": digest(b"<p>1</p>"),
        "size": 8,
        "type": "text/html; charset=utf-8",
        "modified_ms": made["modified_ms"],
        "changed": True,
    }
    again = call("gate", "PUT", "/named/news/today.html", 200, content=b"<p>1</p>", headers=HTML).json()
    assert again == made | {"changed": False}
    for who in ("north", "reader", "admin"):
        found = call(who, "GET", "/named/news/today.html")
        assert found.content == b"<p>1</p>"
        listed = call(who, "GET", "/named").json()
        del made["changed"]
        assert listed == {"pages": [made], "next": None}
        made["changed"] = True
    newer = call("gate", "PUT", "/named/news/today.html", 200, content=b"<p>2</p>", headers=HTML).json()
    assert newer["changed"]
    assert newer["modified_ms"] > made["modified_ms"]
    assert call("north", "GET", "/named/news/today.html").content == b"<p>2</p>"
    assert call("gate", "DELETE", "/named/news/today.html").json() == {"dropped": "news/today.html"}
    call("gate", "DELETE", "/named/news/today.html", 404)
    call("north", "GET", "/named/news/today.html", 404)
    call("north", "HEAD", "/named/news/today.html", 404)


def test_named_page_response_has_modified_time_and_requires_revalidation(call: ApiClient) -> None:
    made = call(
        "gate", "PUT", "/named/a", 201, content=b"0123456789", headers={"Content-Type": "text/plain"}
    ).json()
    for method in ("GET", "HEAD"):
        found = call("north", method, "/named/a")
        assert found.headers["Cache-Control"] == "private, no-cache"
        assert found.headers["ETag"] == f'"{made["id"]}"'
        assert found.headers["Newsstand-Modified"] == str(made["modified_ms"])
        dated = parsedate_to_datetime(found.headers["Last-Modified"])
        assert dated.timestamp() == made["modified_ms"] // 1000
        assert found.headers["Content-Length"] == "10"
        assert found.headers["Content-Type"].startswith("text/plain")
        assert found.headers["Content-Security-Policy"] == "sandbox"
    tag = {"If-None-Match": f'"{made["id"]}"'}
    kept = call("north", "GET", "/named/a", 304, headers=tag)
    assert kept.headers["Newsstand-Modified"] == str(made["modified_ms"])
    part = call("north", "GET", "/named/a", 206, headers={"Range": "bytes=2-4"})
    assert (part.content, part.headers["Content-Range"]) == (b"234", "bytes 2-4/10")
    call("north", "GET", "/named/a", 416, headers={"Range": "bytes=10-"})
    call("gate", "PUT", "/named/a", 200, content=b"other", headers={"Content-Type": "text/plain"})
    assert call("north", "GET", "/named/a", headers=tag).content == b"other"


def test_named_pages_listed_page_by_page(call: ApiClient) -> None:
    for name in ("b", "a/x", "c"):
        call("gate", "PUT", f"/named/{name}", 201, content=b"")
    first = call("reader", "GET", "/named?limit=2").json()
    assert ([page["name"] for page in first["pages"]], first["next"]) == (["a/x", "b"], "b")
    rest = call("reader", "GET", "/named?limit=2&after=b").json()
    assert ([page["name"] for page in rest["pages"]], rest["next"]) == (["c"], None)


@pytest.mark.parametrize(
    "path", ["/named/", "/named/a//b", "/named/a/%2E%2E/b", "/named/%2e", "/named/a%20b", "/named/a/"]
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_named_page_with_invalid_name_answers_422(call: ApiClient, method: str, path: str) -> None:
    error = call("admin", method, path, 422).json()["error"]
    assert re.match("name: must be 1 to 200 of", error)


@pytest.mark.parametrize(
    ("who", "method", "path"),
    [
        ("one", "PUT", "/named/a"),
        ("north", "PUT", "/named/a"),
        ("reader", "PUT", "/named/a"),
        ("one", "DELETE", "/named/a"),
        ("gate", "GET", "/named/a"),
        ("gate", "GET", "/named"),
    ],
)
def test_named_pages_require_scope(call: ApiClient, who: str, method: str, path: str) -> None:
    assert "lacks the scope" in call(who, method, path, 403).json()["error"]


def test_named_page_rejected_when_too_large_or_of_invalid_type(call: ApiClient) -> None:
    call("gate", "PUT", "/named/a", 201, content=bytes(2**20))
    call("gate", "PUT", "/named/b", 413, content=bytes(2**20 + 1))
    call("gate", "PUT", "/named/b", 422, content=b"x", headers={"Content-Type": "nonsense"})
    call("gate", "PUT", "/named/b", 415, content=b"x", headers={"Content-Encoding": "gzip"})
    assert [page["name"] for page in call("reader", "GET", "/named").json()["pages"]] == ["a"]
    assert call("north", "GET", "/named/a").headers["Content-Type"] == "application/octet-stream"


def test_sweep_leaves_named_pages(tmp_path: Path) -> None:
    cluster = StandIn(tmp_path)
    cluster.origin.named.put("a", b"x", "text/plain", 1)
    for path in (tmp_path / "data").rglob("*"):
        os.utime(path, (1000, 1000))
    cluster.pages.sweep(time.time(), folders=256)
    assert cluster.origin.named.read("a")[1] == b"x"
