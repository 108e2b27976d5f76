"""Pages of content that publications carry or point to: the store of the origin (Chen et al. 2003, section 3).

The id of a carried page is a digest of its content, that of a linked page a digest of its URL, so an id never
changes its meaning and can serve as an ETag. Each page has a file of metadata, `ID.json`, and a carried one a file
of content, `ID`; both are in a folder named after the first two digits. The metadata is written last, so a page
that can be found is complete.

Named pages keep their name when their content is replaced, as those of a web site do. Each is one file: a line of
metadata, then the content. It is replaced atomically, so a reader finds the old page or the new one, also after a
crash. The name of its file is a digest of the page's name: `a` and `a/b` can be pages both, and no name reaches
another folder.
"""

from __future__ import annotations

import bisect
import hashlib
import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from newsstand.config.files import FULL, make_folder, sync_folder, write_atomically
from newsstand.config.types import is_http_url
from newsstand.errors import BadApp, BadInput, NoRoom, NotFound
from newsstand.model import LONGEST_PAGE_NAME, PageMetadata, is_page_name, page_id

MAX_PAGE_BYTES = 2**20
"""The default limit of the size of a page that a publication carries."""

_ID = re.compile(r"[0-9a-f]{32}")
_TYPE = re.compile(r"[!#$&^_.+\w-]+/[!#$&^_.+\w-]+( *; *[\w-]+=([\w.+:-]+|\"[ !#-\[\]-~]*\"))*", re.ASCII)


@dataclass(frozen=True)
class GivenPage:
    """A page of a publication; `content` is None for a linked page."""

    page: PageMetadata
    content: bytes | None = None


class _PageMetadata(msgspec.Struct):
    size: int
    type: str
    url: str | None = None


def content_page(content: bytes, type: str = "application/octet-stream") -> PageMetadata:
    """Return the page with this content."""
    _require_type(type)
    return PageMetadata(page_id(content), len(content), type)


def linked_page(url: str, size: int, type: str = "application/octet-stream") -> PageMetadata:
    """Return the linked page at a URL."""
    _require_type(type)
    if not is_http_url(url) or "@" in urlsplit(url).netloc:  # brokers fetch pages without credentials
        raise BadInput(
            "url: not an http:// or https:// address, without user and password, of at most 2048 printable ASCII "
            "characters"
        )
    if not 0 <= size < 2**63:
        raise BadInput(f"size: {size} is not a number of bytes")
    # Another digest than that of contents: no content can have the id of a URL.
    return PageMetadata(hashlib.blake2b(url.encode(), digest_size=16).hexdigest(), size, type, url)


class PageStore:
    """The pages of one cluster, in files under `folder`. Methods may be called from several threads."""

    def __init__(self, folder: Path, max_bytes: int = MAX_PAGE_BYTES) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self._swept = 0
        self._storing: Counter[str] = Counter()
        """The ids of pages that are being stored; they are not swept."""
        self._lock = threading.Lock()

    def put(self, content: bytes, type: str = "application/octet-stream") -> PageMetadata:
        """Store a page; return when it is durable. Known content keeps its first type.

        Raise `NoRoom` if the disk is full; no partial file is left.
        """
        if len(content) > self.max_bytes:
            raise BadInput(f"page: {len(content)} bytes; at most {self.max_bytes} are allowed")
        page = content_page(content, type)
        with self._refreshed(page.id) as known:
            if known is not None:
                return known
            store_file(self.file(page.id), content)
            store_file(self.file(page.id, ".json"), msgspec.json.encode(_PageMetadata(page.size, page.type)))
        return page

    def link(self, url: str, size: int, type: str = "application/octet-stream") -> PageMetadata:
        """Store a linked page; its last size and type replace earlier ones."""
        page = linked_page(url, size, type)
        with self._refreshed(page.id) as known:
            if known != page:
                store_file(self.file(page.id, ".json"), msgspec.json.encode(_PageMetadata(size, type, url)))
        return page

    def store(self, given: GivenPage) -> PageMetadata:
        """Store a page of a publication."""
        page = given.page
        if given.content is not None:
            return self.put(given.content, page.type)
        if page.url is None:
            raise ValueError(f"page {page.id} has neither content nor url")
        return self.link(page.url, page.size, page.type)

    def find(self, id: str) -> PageMetadata | None:
        """Return the page of an id; None if there is none, or the id is malformed."""
        if not _ID.fullmatch(id):
            return None
        try:
            metadata = msgspec.json.decode(self.file(id, ".json").read_bytes(), type=_PageMetadata)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        if metadata.url is None and not self.file(id).exists():
            return None
        return PageMetadata(id, metadata.size, metadata.type, metadata.url)

    def get(self, id: str) -> PageMetadata:
        """Return the page of an id; raise NotFound."""
        page = self.find(id)
        if page is None:
            raise NotFound(f"no page '{id}'")
        return page

    def sweep(self, before_s: float, folders: int = 8) -> int:
        """Remove pages that were last published before a time (Unix seconds) from the next few of the folders.

        Return the number of removed files. A page that is published meanwhile stays.
        """
        removed = 0
        for _ in range(folders):
            folder = self.folder / f"{self._swept:02x}"
            self._swept = (self._swept + 1) % 256
            files = list(folder.iterdir()) if folder.is_dir() else []
            # The metadata first, in the reverse order of storing: a page that can be found is complete.
            for path in sorted(files, key=lambda path: path.suffix != ".json"):
                with self._lock:
                    metadata = path.with_suffix(".json")
                    dated = metadata if metadata.exists() else path
                    if path.stem not in self._storing and dated.exists() and dated.stat().st_mtime < before_s:
                        path.unlink(missing_ok=True)
                        removed += 1
        return removed

    @contextmanager
    def _refreshed(self, id: str) -> Iterator[PageMetadata | None]:
        """Yield the known page of an id while it is stored again, protected from `sweep` and with a new time."""
        with self._lock:
            self._storing[id] += 1
        try:
            found = self.find(id)
            if found is not None:
                os.utime(self.file(id, ".json"))
            yield found
        finally:
            with self._lock:
                self._storing[id] -= 1
                if not self._storing[id]:
                    del self._storing[id]

    def file(self, id: str, suffix: str = "") -> Path:
        """Return the file of a page's content, or, with the suffix `.json`, of its metadata."""
        return self.folder / id[:2] / (id + suffix)


def store_file(path: Path, data: bytes) -> None:
    """Create or replace a durable file of a page, with its folders; raise NoRoom."""
    try:
        make_folder(path.parent)
        write_atomically(path, data)
    except OSError as error:
        if error.errno in FULL:
            folder = path.parent.parent
            raise NoRoom(f"{folder}: no space for a page of {len(data)} bytes; free some and retry") from error
        raise


def _require_type(type: str) -> None:
    if len(type) > 127 or not _TYPE.fullmatch(type):
        raise BadInput(f"type: {type[:127]!r} is not a media type such as text/html")


_LONGEST_HEADER = 4096

logger = logging.getLogger(__name__)


class NamedPageInfo(msgspec.Struct, frozen=True):
    """The metadata of a page that keeps its name when its content is replaced."""

    name: str
    id: Annotated[str, msgspec.Meta(description="the digest of its content, which is its ETag")]
    size: int
    type: str
    modified_ms: int


@dataclass(frozen=True)
class PutOutcome:
    """A page that was put, whether its name is new, and whether anything changed."""

    page: NamedPageInfo
    is_new: bool
    changed: bool


class NamedPages:
    """The named pages of one cluster, in files under `folder`. Methods may be called from several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pages = {page.name: page for page in _scan(folder)}
        self._names = sorted(self._pages)
        self._lock = threading.Lock()

    def put(self, name: str, content: bytes, type: str, now_ms: int) -> PutOutcome:
        """Store or replace a page; return when it is durable.

        A repetition with the same content and type changes nothing. The times of changes always rise, whatever the
        clock does. Raise BadApp for an invalid name, NoRoom if the disk is full.
        """
        require_name(name)
        given = content_page(content, type)
        with self._lock:
            known = self._pages.get(name)
            if known is not None and (known.id, known.type) == (given.id, given.type):
                return PutOutcome(known, is_new=False, changed=False)
            modified_ms = now_ms if known is None else max(now_ms, known.modified_ms + 1)
            page = NamedPageInfo(name, given.id, given.size, given.type, modified_ms)
            store_file(self._file(name), msgspec.json.encode(page) + b"\n" + content)
            self._pages[name] = page
            if known is None:
                bisect.insort(self._names, name)
        return PutOutcome(page, is_new=known is None, changed=True)

    def find(self, name: str) -> NamedPageInfo:
        """Return the metadata of a page; raise NotFound, or BadApp for an invalid name."""
        require_name(name)
        found = self._pages.get(name)
        if found is None:
            raise NotFound(f"no named page '{name}'")
        return found

    def read(self, name: str) -> tuple[NamedPageInfo, bytes]:
        """Return a page and its content, consistent with each other even while the page is replaced."""
        self.find(name)
        try:
            header, _, content = self._file(name).read_bytes().partition(b"\n")
        except FileNotFoundError:
            raise NotFound(f"no named page '{name}'") from None
        return msgspec.json.decode(header, type=NamedPageInfo), content

    def drop(self, name: str) -> None:
        """Remove a page; raise NotFound."""
        with self._lock:
            self.find(name)
            file = self._file(name)
            file.unlink()
            sync_folder(file.parent)
            del self._pages[name]
            del self._names[bisect.bisect_left(self._names, name)]

    def list(self, after: str, limit: int) -> list[NamedPageInfo]:
        """Return pages by name, starting after the name `after`."""
        with self._lock:
            start = bisect.bisect_right(self._names, after)
            return [self._pages[name] for name in self._names[start : start + limit]]

    def _file(self, name: str) -> Path:
        digest = hashlib.sha256(name.encode()).hexdigest()[:32]
        return self._folder / digest[:2] / digest


def require_name(name: str) -> None:
    """Raise BadApp for an invalid name of a page."""
    if not is_page_name(name):
        raise BadApp(
            f"name: must be 1 to {LONGEST_PAGE_NAME} of A-Z, a-z, 0-9, '.', '_', '~', '-' and '/', "
            "and no part between slashes may be empty, '.' or '..'"
        )


def _scan(folder: Path) -> Iterator[NamedPageInfo]:
    """Yield the pages in a folder; remove unfinished files of a crash."""
    for path in sorted(folder.glob("??/*")):
        if path.name.startswith("."):
            path.unlink()
            continue
        with open(path, "rb") as file:
            header = file.readline(_LONGEST_HEADER)
        try:
            yield msgspec.json.decode(header, type=NamedPageInfo)
        except msgspec.DecodeError:
            logger.warning("%s: not a named page; the file is ignored", path)
