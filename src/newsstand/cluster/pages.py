"""Pages of content that publications carry or point to: the store of the origin (Chen et al. 2003, section 3).

A page that was carried is named after its content, one that lies elsewhere after its address, so that a name never
changes its meaning and can serve as an ETag. Each has a file of metadata, `ID.json`, and one that was carried a
file of content, `ID`; both lie in a folder named after the first two digits. The metadata is written last: a page
that can be found is whole.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from newsstand.errors import BadInput, NoRoom
from newsstand.model import Page, page_id

MAX_PAGE_BYTES = 2**20
"""How large a page may be that a publication carries, unless the app says otherwise."""

FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""What the system answers when there is no room: the disk, the user's quota, or the largest file allowed."""

_ID = re.compile(r"[0-9a-f]{32}")
_TYPE = re.compile(r"[!#$&^_.+\w-]+/[!#$&^_.+\w-]+( *; *[\w-]+=([\w.+:-]+|\"[ !#-\[\]-~]*\"))*", re.ASCII)
_URL = re.compile(r"https?://[!-~]+", re.IGNORECASE)


@dataclass(frozen=True)
class GivenPage:
    """A page as it came with a publication; `content` is None if its origin keeps it elsewhere."""

    page: Page
    content: bytes | None = None


@dataclass(frozen=True)
class StoredPage:
    """A page of the store: a file of content, or the address where its origin keeps it."""

    id: str
    size: int
    type: str
    path: Path | None = None
    url: str | None = None


class _Metadata(msgspec.Struct):
    size: int
    type: str
    url: str | None = None


def carried(content: bytes, type: str = "application/octet-stream") -> Page:
    """The page that is this content."""
    _require_type(type)
    return Page(page_id(content), len(content), type)


def elsewhere(url: str, size: int, type: str = "application/octet-stream") -> Page:
    """The page that its origin keeps at an address."""
    _require_type(type)
    if len(url) > 2048 or not _URL.fullmatch(url) or not _host(url):
        raise BadInput("url: not an http:// or https:// address of at most 2048 printable ASCII characters")
    if not 0 <= size < 2**63:
        raise BadInput(f"size: {size} is not a number of bytes")
    # Another digest than that of contents: no content can be made that has the id of an address.
    return Page(hashlib.blake2b(url.encode(), digest_size=16).hexdigest(), size, type, url)


class PageStore:
    """The pages of one cluster, in files under `folder`. Methods may be called from several threads."""

    def __init__(self, folder: Path, max_bytes: int = MAX_PAGE_BYTES) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self._swept = 0
        self._storing: Counter[str] = Counter()
        """The ids of pages that are being stored; they are not swept."""
        self._lock = threading.Lock()

    def keep(self, content: bytes, type: str = "application/octet-stream") -> Page:
        """Store a page; return when it is durable. Content that is known keeps the type that it came with first.

        Raise `NoRoom` if the disk is full; nothing half-written is left.
        """
        if len(content) > self.max_bytes:
            raise BadInput(f"page: {len(content)} bytes; at most {self.max_bytes} are allowed")
        page = carried(content, type)
        with self._stored_again(page.id) as known:
            if known is not None:
                return Page(page.id, page.size, known.type)
            self._write(self._place(page.id), content)
            self._write(self._place(page.id, ".json"), msgspec.json.encode(_Metadata(page.size, page.type)))
        return page

    def point(self, url: str, size: int, type: str = "application/octet-stream") -> Page:
        """Remember where a page's origin keeps it; what is said last about an address stays."""
        page = elsewhere(url, size, type)
        with self._stored_again(page.id) as known:
            if known != StoredPage(page.id, page.size, page.type, url=url):
                self._write(self._place(page.id, ".json"), msgspec.json.encode(_Metadata(size, type, url)))
        return page

    def store(self, given: GivenPage) -> Page:
        """Store a page as it came with a publication."""
        page = given.page
        if given.content is not None:
            return self.keep(given.content, page.type)
        if page.url is None:
            raise ValueError(f"page {page.id} has neither content nor url")
        return self.point(page.url, page.size, page.type)

    def find(self, id: str) -> StoredPage | None:
        """The page of that id, None if there is none or the id is none of ours."""
        if not _ID.fullmatch(id):
            return None
        try:
            metadata = msgspec.json.decode(self._place(id, ".json").read_bytes(), type=_Metadata)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        if metadata.url is not None:
            return StoredPage(id, metadata.size, metadata.type, url=metadata.url)
        path = self._place(id)
        return StoredPage(id, metadata.size, metadata.type, path) if path.exists() else None

    def sweep(self, before_s: float, folders: int = 8) -> int:
        """Remove pages that were last published before that time (Unix seconds), from the next few of the folders;
        return how many files. A page that is published meanwhile stays."""
        removed = 0
        for _ in range(folders):
            folder = self.folder / f"{self._swept:02x}"
            self._swept = (self._swept + 1) % 256
            files = list(folder.iterdir()) if folder.is_dir() else []
            # The metadata before its content, as it came after it: a page that can be found is whole.
            for path in sorted(files, key=lambda path: path.suffix != ".json"):
                with self._lock:
                    metadata = path.with_suffix(".json")
                    dated = metadata if metadata.exists() else path
                    if path.stem not in self._storing and dated.exists() and dated.stat().st_mtime < before_s:
                        path.unlink(missing_ok=True)
                        removed += 1
        return removed

    @contextmanager
    def _stored_again(self, id: str) -> Iterator[StoredPage | None]:
        """The page that is there while it is being stored, perhaps once more: it is as young as a new one."""
        with self._lock:
            self._storing[id] += 1
        try:
            found = self.find(id)
            if found is not None:
                os.utime(self._place(id, ".json"))
            yield found
        finally:
            with self._lock:
                self._storing[id] -= 1
                if not self._storing[id]:
                    del self._storing[id]

    def _place(self, id: str, suffix: str = "") -> Path:
        return self.folder / id[:2] / (id + suffix)

    def _write(self, path: Path, data: bytes) -> None:
        store_file(path, data)


def store_file(path: Path, data: bytes) -> None:
    """Make or replace a durable file of a page, in a folder that need not be there; raise NoRoom."""
    try:
        _make_folder(path.parent)
        write_whole(path, data)
    except OSError as error:
        if error.errno in FULL:
            folder = path.parent.parent
            raise NoRoom(f"{folder}: no room for a page of {len(data)} bytes; make room and retry") from error
        raise


def write_whole(path: Path, data: bytes) -> None:
    """Make a durable file that is either there as a whole or not at all."""
    descriptor, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def _require_type(type: str) -> None:
    if len(type) > 127 or not _TYPE.fullmatch(type):
        raise BadInput(f"type: {type[:127]!r} is not a media type such as text/html")


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
        return parts.hostname
    except ValueError:
        return None
