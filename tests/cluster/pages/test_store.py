from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environment import small_disk  # noqa: F401

from newsstand.cluster.pages.store import GivenPage, PageStore, content_page, linked_page, store_file
from newsstand.errors import BadInput, NoRoom
from newsstand.model import PageMetadata


@pytest.fixture
def store(tmp_path: Path) -> PageStore:
    return PageStore(tmp_path / "pages", max_bytes=1000)


def files(store: PageStore) -> list[Path]:
    return [path for path in store.folder.rglob("*") if path.is_file()]


def test_page_id_is_digest_of_content(store: PageStore) -> None:
    page = store.put(b"<p>Hello</p>", "text/html")
    assert page == PageMetadata(hashlib.sha256(b"<p>Hello</p>").hexdigest()[:32], 12, "text/html")
    assert PageStore(store.folder).find(page.id) == page
    assert store.file(page.id).read_bytes() == b"<p>Hello</p>"


def test_same_content_stored_once_with_first_type(store: PageStore) -> None:
    first = store.put(b"x", "text/plain")
    assert store.put(b"x", "text/html") == first
    assert len(files(store)) == 2


def test_linked_page_id_is_digest_of_url(store: PageStore) -> None:
    page = store.link("https://example.org/a", 70_000, "image/png")
    assert page == PageMetadata(page.id, 70_000, "image/png", "https://example.org/a")
    assert store.find(page.id) == page
    assert store.link("https://example.org/a", 80_000, "image/png").id == page.id
    found = store.find(page.id)
    assert found is not None
    assert found.size == 80_000


def test_store_accepts_carried_and_linked_pages(store: PageStore) -> None:
    assert store.store(GivenPage(content_page(b"x"), b"x")) == store.put(b"x")
    there = linked_page("http://example.org/", 1)
    assert store.store(GivenPage(there)) == there


def test_page_rejected_when_too_large(store: PageStore) -> None:
    store.put(bytes(1000))
    with pytest.raises(BadInput, match="1001 bytes; at most 1000"):
        store.put(bytes(1001))


@pytest.mark.parametrize("type", ["", "html", "text/", "a/b\r\nX: y", "a/b; c", "text/" + "x" * 130, "a/é"])
def test_page_rejected_when_type_is_invalid(store: PageStore, type: str) -> None:
    with pytest.raises(BadInput, match="media type"):
        store.put(b"x", type)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "file:///etc/passwd",
        "http://",
        "http://a b",
        "//x",
        "http://é/",
        "http://[",
        "http://a:b/",
        "http://user@a/",
    ],
)
def test_linked_page_rejected_when_url_is_invalid(store: PageStore, url: str) -> None:
    with pytest.raises(BadInput, match="url"):
        store.link(url, 1)


@given(
    id=st.one_of(st.text(), st.sampled_from(["../../secret", "/etc/passwd", "A" * 32, "0" * 31, "0" * 32 + "\n"]))
)
def test_malformed_id_reaches_no_other_file(tmp_path_factory: pytest.TempPathFactory, id: str) -> None:
    assert PageStore(tmp_path_factory.getbasetemp()).find(id) is None


def test_page_without_metadata_not_found(store: PageStore) -> None:
    page = store.put(b"x")
    next(store.folder.rglob("*.json")).unlink()
    assert store.find(page.id) is None
    assert store.put(b"x") == page
    assert store.find(page.id) is not None


def aged(store: PageStore, page: PageMetadata, at_s: float) -> None:
    for path in store.folder.rglob(f"{page.id}*"):
        os.utime(path, (at_s, at_s))


def test_sweep_removes_pages_not_published_lately(store: PageStore) -> None:
    old, again, there, new = (
        store.put(b"old"),
        store.put(b"again"),
        store.link("http://a/", 1),
        store.put(b"new"),
    )
    for page in (old, again, there):
        aged(store, page, 1000)
    store.put(b"again")
    assert store.sweep(900, folders=256) == 0
    assert store.sweep(2000, folders=256) == 3
    assert [store.find(page.id) is not None for page in (old, again, there, new)] == [False, True, False, True]
    assert len(files(store)) == 4


def test_sweep_visits_few_folders_per_call(store: PageStore) -> None:
    for number in range(50):
        aged(store, store.put(bytes([number])), 1000)
    removed = [store.sweep(2000) for _ in range(32)]
    assert sum(removed) == 100
    assert max(removed) < 30
    assert files(store) == []


def test_sweep_leaves_page_published_meanwhile(store: PageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    page = store.put(b"x")
    aged(store, page, 1000)

    def sweep_before(path: Path, data: bytes) -> None:
        assert store.sweep(2000, folders=256) == 0
        store_file(path, data)

    monkeypatch.setattr("newsstand.cluster.pages.store.store_file", sweep_before)
    next(store.folder.rglob("*.json")).unlink()
    assert store.put(b"x") == page
    assert store.find(page.id) is not None


def test_full_disk_leaves_no_partial_file(small_disk: Path) -> None:  # noqa: F811
    store = PageStore(small_disk)
    kept = store.put(b"small")
    with pytest.raises(NoRoom, match="no space for a page of 300000 bytes"):
        store.put(bytes(300_000))
    assert sorted(path.name for path in files(store)) == [kept.id, kept.id + ".json"]
    store.put(bytes(100_000))
