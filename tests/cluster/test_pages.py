from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from newsstand.cluster.pages import GivenPage, PageStore, StoredPage, carried, elsewhere
from newsstand.errors import BadInput, NoRoom
from newsstand.model import Page


@pytest.fixture
def store(tmp_path: Path) -> PageStore:
    return PageStore(tmp_path / "pages", max_bytes=1000)


def files(store: PageStore) -> list[Path]:
    return [path for path in store.folder.rglob("*") if path.is_file()]


def test_a_page_is_named_after_its_content_and_found_again(store: PageStore) -> None:
    page = store.keep(b"<p>Hello</p>", "text/html")
    assert page == Page(hashlib.sha256(b"<p>Hello</p>").hexdigest()[:32], 12, "text/html")
    found = PageStore(store.folder).find(page.id)
    assert found is not None
    assert found.path is not None
    assert found == StoredPage(page.id, 12, "text/html", found.path)
    assert found.path.read_bytes() == b"<p>Hello</p>"


def test_the_same_content_is_kept_once_with_its_first_type(store: PageStore) -> None:
    first = store.keep(b"x", "text/plain")
    assert store.keep(b"x", "text/html") == first
    assert len(files(store)) == 2


def test_a_page_elsewhere_is_named_after_its_address(store: PageStore) -> None:
    page = store.point("https://example.org/a", 70_000, "image/png")
    assert store.find(page.id) == StoredPage(page.id, 70_000, "image/png", url="https://example.org/a")
    assert store.point("https://example.org/a", 80_000, "image/png").id == page.id
    found = store.find(page.id)
    assert found is not None
    assert found.size == 80_000


def test_pages_are_stored_as_they_are_given(store: PageStore) -> None:
    assert store.store(GivenPage(carried(b"x"), b"x")) == store.keep(b"x")
    there = elsewhere("http://example.org/", 1)
    assert store.store(GivenPage(there)) == there


def test_a_page_that_is_too_large_is_refused(store: PageStore) -> None:
    store.keep(bytes(1000))
    with pytest.raises(BadInput, match="1001 bytes; at most 1000"):
        store.keep(bytes(1001))


@pytest.mark.parametrize("type", ["", "html", "text/", "a/b\r\nX: y", "a/b; c", "text/" + "x" * 130, "a/é"])
def test_a_type_that_is_none_is_refused(store: PageStore, type: str) -> None:
    with pytest.raises(BadInput, match="media type"):
        store.keep(b"x", type)


@pytest.mark.parametrize(
    "url", ["", "file:///etc/passwd", "http://", "http://a b", "//x", "http://é/", "http://[", "http://a:b/"]
)
def test_an_address_that_is_none_is_refused(store: PageStore, url: str) -> None:
    with pytest.raises(BadInput, match="url"):
        store.point(url, 1)


@given(
    id=st.one_of(st.text(), st.sampled_from(["../../secret", "/etc/passwd", "A" * 32, "0" * 31, "0" * 32 + "\n"]))
)
@settings(deadline=None)
def test_ids_from_outside_reach_no_other_file(tmp_path_factory: pytest.TempPathFactory, id: str) -> None:
    assert PageStore(tmp_path_factory.getbasetemp()).find(id) is None


def test_a_page_whose_metadata_was_never_written_is_not_there(store: PageStore) -> None:
    page = store.keep(b"x")
    next(store.folder.rglob("*.json")).unlink()
    assert store.find(page.id) is None
    assert store.keep(b"x") == page
    assert store.find(page.id) is not None


def aged(store: PageStore, page: Page, at_s: float) -> None:
    for path in store.folder.rglob(f"{page.id}*"):
        os.utime(path, (at_s, at_s))


def test_pages_that_were_not_published_for_long_are_swept(store: PageStore) -> None:
    old, again, there, new = (
        store.keep(b"old"),
        store.keep(b"again"),
        store.point("http://a/", 1),
        store.keep(b"new"),
    )
    for page in (old, again, there):
        aged(store, page, 1000)
    store.keep(b"again")
    assert store.sweep(900, folders=256) == 0
    assert store.sweep(2000, folders=256) == 3
    assert [store.find(page.id) is not None for page in (old, again, there, new)] == [False, True, False, True]
    assert len(files(store)) == 4


def test_a_sweep_goes_through_a_few_folders_at_a_time(store: PageStore) -> None:
    for number in range(50):
        aged(store, store.keep(bytes([number])), 1000)
    removed = [store.sweep(2000) for _ in range(32)]
    assert sum(removed) == 100
    assert max(removed) < 30
    assert files(store) == []


def test_a_page_that_is_published_while_it_is_swept_stays(
    store: PageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = store.keep(b"x")
    aged(store, page, 1000)
    write = PageStore._write

    def sweep_before(self: PageStore, path: Path, data: bytes) -> None:
        assert self.sweep(2000, folders=256) == 0
        write(self, path, data)

    monkeypatch.setattr(PageStore, "_write", sweep_before)
    next(store.folder.rglob("*.json")).unlink()
    assert store.keep(b"x") == page
    assert store.find(page.id) is not None


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "newsstand-test", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a small tmpfs here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_keeps_nothing_half_written(small_disk: Path) -> None:
    store = PageStore(small_disk)
    kept = store.keep(b"small")
    with pytest.raises(NoRoom, match="no room for a page of 300000 bytes"):
        store.keep(bytes(300_000))
    assert sorted(path.name for path in files(store)) == [kept.id, kept.id + ".json"]
    store.keep(bytes(100_000))
