"""The catalog: the datasets and channels that the cluster has now.

They come from newsstand.toml; what was created, changed or dropped over HTTP is kept in DATA/catalog.json. Such an
override holds until the file's own definition of that name changes: then the file was edited later, and wins.

What is recorded must stay readable. So a dataset may only gain optional fields, and a channel keeps its parameters
and its new dataset, whether the change comes over HTTP or by editing the file between two starts.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from newsstand.cluster.app_folder import App
from newsstand.cluster.body import parse_body, parse_channel
from newsstand.cluster.channels import channel_table
from newsstand.cluster.pages import FULL, write_whole
from newsstand.cluster.records import dataset_table, parse_dataset
from newsstand.errors import BadApp, BadInput, NoRoom, NotFound
from newsstand.model import Channel, Dataset, Parameter

Table = dict[str, object]
Kind = Literal["datasets", "channels"]
Noun = TypeVar("Noun", Dataset, Channel)


class Conflict(BadApp):
    """A definition is well formed, and contradicts another or what is recorded."""


class Exists(Conflict):
    """What was to be made is there already."""


class Override(msgspec.Struct, frozen=True):
    """What holds in place of the file's definition: `now` (None if dropped), over the one with the hash `over`."""

    now: Table | None
    over: str | None


class Streams(msgspec.Struct, frozen=True):
    """What a channel's streams are made of."""

    new: str
    parameters: list[Parameter]


class _Kept(msgspec.Struct):
    """DATA/catalog.json."""

    version: Literal[1] = 1
    datasets: dict[str, Override] = {}
    channels: dict[str, Override] = {}
    recorded: dict[str, Table] = {}
    """All datasets that there ever were: recorded publications have their shapes, also those of dropped ones."""
    streams: dict[str, Streams] = {}
    """Likewise of the channels."""


class Catalog:
    """The live set of datasets and channels; `read_only` for who only looks, beside the cluster or without one.

    Methods may be called from several threads.
    """

    def __init__(self, app: App, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._defaults = app.defaults
        self._declared: dict[Kind, dict[str, Table]] = {
            "datasets": {name: dataset_table(one) for name, one in app.datasets.items()},
            "channels": {name: channel_table(one) for name, one in app.channels.items()},
        }
        kept = _read(path)
        self._streams = kept.streams
        self.superseded: list[str] = []
        """Overrides that no longer hold because the file was edited: `datasets.NAME` or `channels.NAME`."""
        self._overrides: dict[Kind, dict[str, Override]] = {
            "datasets": self._holding("datasets", kept.datasets),
            "channels": self._holding("channels", kept.channels),
        }
        self._datasets = self._merged("datasets", app.datasets, self._dataset)
        self._channels = self._merged("channels", app.channels, self._channel)
        for name, dataset in self._datasets.items():
            if recorded := kept.recorded.get(name):
                require_same_records(self._dataset(name, recorded), dataset)
        self._recorded = kept.recorded
        for name, channel in self._channels.items():
            if streams := kept.streams.get(name):
                before = Channel(name, "", streams.new, tuple(streams.parameters))
                require_same_streams(before, channel)
        if not read_only:
            self._write(self._overrides)

    @property
    def defaults(self) -> dict[str, object]:
        """What a channel has if it does not say otherwise."""
        return dict(self._defaults)

    def datasets(self) -> dict[str, Dataset]:
        """All datasets by name."""
        with self._lock:
            return dict(self._datasets)

    def channels(self) -> dict[str, Channel]:
        """All channels by name."""
        with self._lock:
            return dict(self._channels)

    def dataset(self, name: str) -> Dataset:
        """One dataset; raise NotFound."""
        return _one(self._datasets, "dataset", name)

    def channel(self, name: str) -> Channel:
        """One channel; raise NotFound."""
        return _one(self._channels, "channel", name)

    def put_dataset(self, dataset: Dataset, *, only_new: bool = False) -> Dataset | None:
        """Add or change a dataset; return what had its name. It is durable when this returns."""
        with self._lock:
            before = _before(self._datasets, dataset.name, only_new)
            if recorded := self._recorded.get(dataset.name):
                require_same_records(self._dataset(dataset.name, recorded), dataset)
            changed = self._datasets | {dataset.name: dataset}
            for channel in self._channels.values():
                parse_body(channel, changed)
            self._change("datasets", dataset.name, dataset_table(dataset), datasets=changed)
            return before

    def drop_dataset(self, name: str) -> Dataset:
        """Drop a dataset that no channel reads."""
        with self._lock:
            dropped = self.dataset(name)
            left = {other: one for other, one in self._datasets.items() if other != name}
            for channel in self._channels.values():
                try:
                    parse_body(channel, left)
                except BadInput:
                    raise Conflict(
                        f"dataset '{name}': channel '{channel.name}' reads it; drop the channel first"
                    ) from None
            self._change("datasets", name, None, datasets=left)
            return dropped

    def put_channel(self, channel: Channel, *, only_new: bool = False) -> Channel | None:
        """Add or change a channel; return what had its name. Its query must have been checked against Spark."""
        with self._lock:
            before = _before(self._channels, channel.name, only_new)
            if before is not None:
                require_same_streams(before, channel)
            parse_body(channel, self._datasets)
            changed = self._channels | {channel.name: channel}
            self._change("channels", channel.name, channel_table(channel), channels=changed)
            return before

    def drop_channel(self, name: str) -> Channel:
        """Drop a channel."""
        with self._lock:
            dropped = self.channel(name)
            left = {other: one for other, one in self._channels.items() if other != name}
            self._change("channels", name, None, channels=left)
            return dropped

    def _change(
        self,
        kind: Kind,
        name: str,
        table: Table | None,
        *,
        datasets: dict[str, Dataset] | None = None,
        channels: dict[str, Channel] | None = None,
    ) -> None:
        """Keep an override, and only then let it hold."""
        declared = self._declared[kind].get(name)
        own = dict(self._overrides[kind])
        if json.dumps(table) == json.dumps(declared):  # with the order, which `==` does not compare
            own.pop(name, None)
        else:
            own[name] = Override(table, None if declared is None else _hash(declared))
        before = self._datasets, self._channels
        if datasets is not None:
            self._datasets = datasets
        if channels is not None:
            self._channels = channels
        try:
            self._write({**self._overrides, kind: own})
        except BaseException:
            self._datasets, self._channels = before
            raise
        self._overrides[kind] = own

    def _holding(self, kind: Kind, kept: dict[str, Override]) -> dict[str, Override]:
        """The overrides whose definition in the file is still the one that they were made over."""
        holding = {}
        for name, override in kept.items():
            declared = self._declared[kind].get(name)
            if override.over == (None if declared is None else _hash(declared)):
                holding[name] = override
            else:
                self.superseded.append(f"{kind}.{name}")
        return holding

    def _merged(
        self, kind: Kind, declared: Mapping[str, Noun], parse: Callable[[str, Table], Noun]
    ) -> dict[str, Noun]:
        merged = dict(declared)
        for name, override in self._overrides[kind].items():
            if override.now is None:
                merged.pop(name, None)
                continue
            try:
                merged[name] = parse(name, override.now)
            except BadInput as error:
                raise BadApp(f"{self._path}: {error}") from error
        return merged

    def _dataset(self, name: str, table: Table) -> Dataset:
        return parse_dataset(name, table)

    def _channel(self, name: str, table: Table) -> Channel:
        return parse_channel(name, self._in_order(name, table), self._datasets, self._defaults)

    def _in_order(self, name: str, table: Table) -> Table:
        """Restore the order of parameters in a file of an earlier version, which sorted them by name.

        The list of `streams` in the same file has always kept their order.
        """
        given, streams = table.get("parameters"), self._streams.get(name)
        if streams is None or not isinstance(given, dict):
            return table
        kept = {one.name: one.type for one in streams.parameters}
        return {**table, "parameters": kept} if kept == given else table

    def _write(self, overrides: Mapping[Kind, dict[str, Override]]) -> None:
        recorded = self._recorded | {name: dataset_table(one) for name, one in self._datasets.items()}
        kept = _Kept(
            datasets=overrides["datasets"],
            channels=overrides["channels"],
            recorded=recorded,
            streams={name: Streams(one.new, list(one.parameters)) for name, one in self._channels.items()},
        )
        # Not sorted: the order of a channel's parameters and of a dataset's fields has a meaning.
        text = msgspec.json.format(msgspec.json.encode(kept), indent=1)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if not self._path.exists() or self._path.read_bytes() != text:
                write_whole(self._path, text)
            self._recorded = recorded
        except OSError as error:
            if error.errno in FULL:
                raise NoRoom(f"{self._path}: the disk is full; nothing was changed") from error
            raise BadApp(f"{self._path}: cannot be written ({error.strerror})") from error


def require_same_records(before: Dataset, after: Dataset) -> None:
    """Refuse a change of a dataset that its recorded publications do not fit."""
    place = f"datasets.{after.name}"
    if before.key != after.key:
        raise Conflict(
            f"{place}.key: was {_named(before.key)} and cannot become {_named(after.key)}; use a new name"
        )
    fields = {field.name: field for field in after.fields}
    for old in before.fields:
        new = fields.pop(old.name, None)
        if new is None:
            raise Conflict(f"{place}.fields.{old.name}: recorded publications have it; it cannot be dropped")
        if new != old:
            raise Conflict(
                f"{place}.fields.{old.name}: was {_spelled(old.type, old.optional)} and cannot become "
                f"{_spelled(new.type, new.optional)}; use a new name"
            )
    for name, new in fields.items():
        if not new.optional:
            raise Conflict(
                f"{place}.fields.{name}: recorded publications lack it; make it optional: "
                f"{_spelled(new.type, optional=True)}"
            )


def require_same_streams(before: Channel, after: Channel) -> None:
    """Refuse a change of a channel that its streams do not fit."""
    place = f"channels.{after.name}"
    if before.new != after.new:
        raise Conflict(f"{place}.new: was '{before.new}' and cannot become '{after.new}'; use a new name")
    if before.parameters != after.parameters:
        old, new = (
            ", ".join(f"{one.name} {one.type}" for one in channel.parameters) or "none"
            for channel in (before, after)
        )
        raise Conflict(f"{place}.parameters: were ({old}) and cannot become ({new}); use a new name")


def _one(nouns: Mapping[str, Noun], kind: str, name: str) -> Noun:
    found = nouns.get(name)
    if found is None:
        raise NotFound(f"no {kind} '{name}'; there are: {', '.join(sorted(nouns)) or 'none'}")
    return found


def _before(nouns: Mapping[str, Noun], name: str, only_new: bool) -> Noun | None:
    """What is to be changed; raise Exists if only something new may be made."""
    before = nouns.get(name)
    if before is not None and only_new:
        raise Exists(f"'{name}' exists already")
    return before


def recorded_channels(path: Path) -> dict[str, str]:
    """The channels that the file of a catalog lists, each with its new dataset."""
    return {name: streams.new for name, streams in _read(path).streams.items()}


def _read(path: Path) -> _Kept:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Kept)
    except FileNotFoundError:
        return _Kept()
    except msgspec.DecodeError as error:
        raise BadApp(f"{path}: cannot be understood ({error}); put back a copy, or remove it") from error
    except OSError as error:
        raise BadApp(f"{path}: cannot be read ({error.strerror})") from error


def _hash(table: Table) -> str:
    text = json.dumps(table, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _spelled(type_: str, optional: bool) -> str:
    return f"'{type_}{'?' if optional else ''}'"


def _named(key: str | None) -> str:
    return "absent" if key is None else f"'{key}'"
