"""Publications: judged at the door, made durable in the log, traced; and the pages that they carry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from newsstand.cluster.cluster_parts import ClusterParts
from newsstand.cluster.door import Door
from newsstand.cluster.facade import Facts, Form, Receipt
from newsstand.cluster.pages import StoredPage
from newsstand.cluster.trace import trace, trace_lost
from newsstand.errors import Busy, NotFound
from newsstand.model import Dataset

MOST_IN_FLIGHT = 64 * 2**20
"""Bytes of bodies that are being judged and written at any moment; more than that has to wait outside."""


class Publications(ClusterParts):
    """What comes in."""

    def publish(
        self, dataset: str, body: bytes, form: Form, key: str | None, publisher: str | None = None
    ) -> Receipt:
        """Judge the records of a body and add the good ones to the log; they are durable when this returns."""
        door = self._door(self.catalog.dataset(dataset))
        self._refuse_if_behind(dataset)
        with self._weighed(len(body)):
            admitted = door.admit(body, form)
            for page in admitted.pages:
                self._pages.store(page)
            if not admitted.lines:
                self.metrics.published(dataset, 0, len(admitted.refused))
                return Receipt(0, None, None, admitted.refused)
            added = self._log.append(dataset, admitted.lines, self._now_ms(), key, publisher)
        if not added.repeated:
            self.metrics.published(dataset, len(admitted.lines), len(admitted.refused))
        accepted = added.last - added.first + 1
        return Receipt(accepted, added.first, added.last, admitted.refused, added.repeated)

    def trace(self, dataset: str, seq: int) -> Facts:
        """What became of one publication."""
        found = next(self._log.read(self.catalog.dataset(dataset).name, seq - 1, seq), None)
        channels = [one for one in self.catalog.channels().values() if one.new == dataset]
        if found is None:
            lost = self._log.lost(dataset, seq)
            if lost is not None:
                return trace_lost(seq, lost, channels, self._results, self._engine.running)
            raise NotFound(f"dataset '{dataset}': no publication {seq}; the newest is {self._log.head(dataset)}")
        return trace(found, channels, self._results, self._engine.running)

    def page(self, page: str) -> StoredPage:
        """A page that some publication carried or points to."""
        found = self._pages.find(page)
        if found is None:
            raise NotFound(f"no page '{page}'")
        return found

    def _door(self, dataset: Dataset) -> Door:
        door = self._doors.get(dataset.name)
        if door is None or door.dataset != dataset:
            door = self._doors[dataset.name] = Door(dataset, self._options.max_page_bytes)
        return door

    def _refuse_if_behind(self, dataset: str) -> None:
        head = self._log.head(dataset)
        for name, channel in self.catalog.channels().items():
            if channel.new == dataset and head - (self._results.position(name) or 0) > self._options.max_lag:
                running = self._engine.running(name)
                if running is not None and running.failure is None:
                    raise Busy(f"channel '{name}' is more than {self._options.max_lag} publications behind", 2.0)

    @contextmanager
    def _weighed(self, size: int) -> Iterator[None]:
        with self._weighing:
            if self._in_flight and self._in_flight + size > MOST_IN_FLIGHT:
                raise Busy("too much is being published at once", 1.0)
            self._in_flight += size
        try:
            yield
        finally:
            with self._weighing:
                self._in_flight -= size
