"""Named pages: pages that keep their name when their content is replaced, as those of a web site do.

Each is one file that begins with a line of metadata and goes on with the content. It is replaced as a whole, so
that whoever reads it, also after a crash, finds the old page or the new one and nothing in between. Its file is
named after a digest of the page's name: `a` and `a/b` can be pages both, and no name reaches another folder.
"""

from __future__ import annotations

import bisect
import hashlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from newsstand.cluster.pages import carried, store_file, sync_folder
from newsstand.errors import BadApp, NotFound
from newsstand.model import LONGEST_PAGE_NAME, is_page_name

_LONGEST_HEADER = 4096

logger = logging.getLogger(__name__)


class NamedPage(msgspec.Struct, frozen=True):
    """What is known of a named page; `id` is the digest of its content."""

    name: str
    id: str
    size: int
    type: str
    modified_ms: int


@dataclass(frozen=True)
class Put:
    """What became of a page that was put: whether its name is new, and whether anything changed."""

    page: NamedPage
    is_new: bool
    changed: bool


class NamedPages:
    """The named pages of one cluster, in files under `folder`. Methods may be called from several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pages = {page.name: page for page in _found(folder)}
        self._names = sorted(self._pages)
        self._lock = threading.Lock()

    def put(self, name: str, content: bytes, type: str, now_ms: int) -> Put:
        """Store a page under a name, in place of what was there; return when it is durable.

        The same content and type once more change nothing. Each change is later than the one before it, whatever
        the clock does. Raise BadApp for a name that is none, NoRoom if the disk is full.
        """
        require_name(name)
        given = carried(content, type)
        with self._lock:
            known = self._pages.get(name)
            if known is not None and (known.id, known.type) == (given.id, given.type):
                return Put(known, is_new=False, changed=False)
            modified_ms = now_ms if known is None else max(now_ms, known.modified_ms + 1)
            page = NamedPage(name, given.id, given.size, given.type, modified_ms)
            store_file(self._place(name), msgspec.json.encode(page) + b"\n" + content)
            self._pages[name] = page
            if known is None:
                bisect.insort(self._names, name)
        return Put(page, is_new=known is None, changed=True)

    def find(self, name: str) -> NamedPage:
        """What is known of a page; raise NotFound, or BadApp for a name that is none."""
        require_name(name)
        found = self._pages.get(name)
        if found is None:
            raise NotFound(f"no named page '{name}'")
        return found

    def read(self, name: str) -> tuple[NamedPage, bytes]:
        """A page with its content, which belong together however often it is replaced meanwhile."""
        self.find(name)
        try:
            header, _, content = self._place(name).read_bytes().partition(b"\n")
        except FileNotFoundError:
            raise NotFound(f"no named page '{name}'") from None
        return msgspec.json.decode(header, type=NamedPage), content

    def drop(self, name: str) -> None:
        """Remove a page; raise NotFound."""
        with self._lock:
            self.find(name)
            place = self._place(name)
            place.unlink()
            sync_folder(place.parent)
            del self._pages[name]
            del self._names[bisect.bisect_left(self._names, name)]

    def list(self, after: str, limit: int) -> list[NamedPage]:
        """Pages in the order of their names, from the one after `after` on."""
        with self._lock:
            start = bisect.bisect_right(self._names, after)
            return [self._pages[name] for name in self._names[start : start + limit]]

    def _place(self, name: str) -> Path:
        digest = hashlib.sha256(name.encode()).hexdigest()[:32]
        return self._folder / digest[:2] / digest


def require_name(name: str) -> None:
    """Raise BadApp if this cannot be the name of a page."""
    if not is_page_name(name):
        raise BadApp(
            f"name: must be 1 to {LONGEST_PAGE_NAME} of A-Z, a-z, 0-9, '.', '_', '~', '-' and '/', "
            "and no part between slashes may be empty, '.' or '..'"
        )


def _found(folder: Path) -> Iterator[NamedPage]:
    """The pages in a folder; what a crash left behind unfinished is removed."""
    for path in sorted(folder.glob("??/*")):
        if path.name.startswith("."):
            path.unlink()
            continue
        with open(path, "rb") as file:
            header = file.readline(_LONGEST_HEADER)
        try:
            yield msgspec.json.decode(header, type=NamedPage)
        except msgspec.DecodeError:
            logger.warning("%s: is no page; it is left alone", path)
