"""The catalog: the current datasets and channels of the cluster.

newsstand.toml declares them; DATA/catalog.json has the changes over HTTP, as overrides. An override is valid until
the declaration of that name changes: then the file was edited later and takes precedence.

Recorded data must stay readable. So a dataset may only gain optional fields, and a channel keeps its parameters
and its new dataset, whether the change comes over HTTP or by editing the file between two starts.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, Literal, TypeVar

import msgspec

from newsstand.cluster.app_folder import App
from newsstand.cluster.ingest.schema import dataset_table, parse_dataset
from newsstand.cluster.query.parser import channel_table, parse_body, parse_channel
from newsstand.config.files import FULL, write_atomically
from newsstand.errors import BadApp, BadInput, NoRoom, NotFound
from newsstand.model import ChannelDefinition, Dataset, DeliveryMode, Parameter

Table = dict[str, object]
Definition = TypeVar("Definition", Dataset, ChannelDefinition)


class Conflict(BadApp):
    """A well-formed definition contradicts another one or recorded data."""

    http_status = 409


class Exists(Conflict):
    """A definition to be created exists already."""

    http_status = 412


class Override(msgspec.Struct, frozen=True):
    """A change over HTTP, which replaces the declaration in newsstand.toml."""

    now: Table | None
    """The present definition; None if it was dropped."""
    over: str | None
    """The hash of the declaration that it replaces; None if the file declares nothing of that name."""


class StreamKey(msgspec.Struct, frozen=True):
    """The properties of a channel that its streams depend on."""

    new: str
    parameters: list[Parameter]


class _CatalogFile(msgspec.Struct):
    """DATA/catalog.json."""

    version: Literal[1] = 1
    datasets: dict[str, Override] = {}
    channels: dict[str, Override] = {}
    recorded: dict[str, Table] = {}
    """All datasets ever defined, also dropped ones: recorded publications have their fields."""
    streams: dict[str, StreamKey] = {}
    """The same for channels."""


@dataclass(frozen=True)
class _Definitions(Generic[Definition]):
    """The definitions of one kind: those of newsstand.toml, the overrides, and the current ones."""

    kind: str
    table_of: Callable[[Definition], Table]
    declared: Mapping[str, Definition]
    current: dict[str, Definition]
    overrides: dict[str, Override] = field(default_factory=dict)

    def one(self, name: str) -> Definition:
        """Return a definition; raise NotFound."""
        found = self.current.get(name)
        if found is None:
            raise NotFound(f"no {self.kind} '{name}'; there are: {', '.join(sorted(self.current)) or 'none'}")
        return found

    def previous(self, name: str, only_new: bool) -> Definition | None:
        """Return the definition to be changed; raise Exists if there is one and `only_new` is set."""
        if name in self.current and only_new:
            raise Exists(f"'{name}' exists already")
        return self.current.get(name)

    def changed(self, name: str, made: Definition | None) -> _Definitions[Definition]:
        """Return the definitions with a new or changed one, or without it; a declaration needs no override."""
        current = {other: one for other, one in self.current.items() if made is not None or other != name}
        overrides = {other: one for other, one in self.overrides.items() if other != name}
        table, declared = None, self.declared_table(name)
        if made is not None:
            current[name] = made
            table = self.table_of(made)
        if json.dumps(table) != json.dumps(declared):  # with the order, which `==` does not compare
            overrides[name] = Override(table, _hash(declared))
        return replace(self, current=current, overrides=overrides)

    def declared_table(self, name: str) -> Table | None:
        """Return the declaration of a name in newsstand.toml, if there is one."""
        return self.table_of(self.declared[name]) if name in self.declared else None


class Catalog:
    """The current datasets and channels. Methods may be called from several threads."""

    def __init__(self, app: App, path: Path, *, read_only: bool = False) -> None:
        """`read_only` leaves the file as it is, which another process may own."""
        self._path = path
        self._lock = threading.RLock()
        self.defaults = app.defaults
        """The defaults of channels."""
        file = _read(path)
        self._recorded = file.recorded
        self.superseded: list[str] = []
        """Overrides that are void because newsstand.toml was edited: `datasets.NAME` or `channels.NAME`."""
        self._datasets = _Definitions("dataset", dataset_table, app.datasets, dict(app.datasets))
        self._load(self._datasets, file.datasets, parse_dataset)
        self._channels = _Definitions("channel", channel_table, app.channels, dict(app.channels))
        self._load(self._channels, file.channels, self._parse_channel)
        for name, dataset in self._datasets.current.items():
            self._require_same_records(name, dataset)
        for name, channel in self._channels.current.items():
            if streams := file.streams.get(name):
                before = ChannelDefinition(name, "", streams.new, tuple(streams.parameters))
                require_same_streams(before, channel)
        if not read_only:
            self._write(self._datasets, self._channels)

    def datasets(self) -> dict[str, Dataset]:
        """Return all datasets by name."""
        return dict(self._datasets.current)

    def channels(self) -> dict[str, ChannelDefinition]:
        """Return all channels by name."""
        return dict(self._channels.current)

    def dataset(self, name: str) -> Dataset:
        """Return one dataset; raise NotFound."""
        return self._datasets.one(name)

    def channel(self, name: str) -> ChannelDefinition:
        """Return one channel; raise NotFound."""
        return self._channels.one(name)

    def delivery(self, name: str) -> DeliveryMode:
        """Return what notifications of a channel carry; positions only for an unknown one."""
        channel = self._channels.current.get(name)
        return "pull" if channel is None else channel.delivery

    def put_dataset(self, dataset: Dataset, *, only_new: bool = False) -> Dataset | None:
        """Add or change a dataset; return the previous one. The change is durable when this returns."""
        with self._lock:
            before = self._datasets.previous(dataset.name, only_new)
            self._require_same_records(dataset.name, dataset)
            changed = self._datasets.changed(dataset.name, dataset)
            for channel in self._channels.current.values():
                parse_body(channel, changed.current)
            self._write(changed, self._channels)
            return before

    def drop_dataset(self, name: str) -> Dataset:
        """Drop a dataset that no channel reads."""
        with self._lock:
            dropped = self.dataset(name)
            left = self._datasets.changed(name, None)
            for channel in self._channels.current.values():
                try:
                    parse_body(channel, left.current)
                except BadInput:
                    raise Conflict(
                        f"dataset '{name}': channel '{channel.name}' reads it; drop the channel first"
                    ) from None
            self._write(left, self._channels)
            return dropped

    def put_channel(self, channel: ChannelDefinition, *, only_new: bool = False) -> ChannelDefinition | None:
        """Add or change a channel, whose query Spark has checked; return the previous one."""
        with self._lock:
            before = self._channels.previous(channel.name, only_new)
            if before is not None:
                require_same_streams(before, channel)
            parse_body(channel, self._datasets.current)
            self._write(self._datasets, self._channels.changed(channel.name, channel))
            return before

    def drop_channel(self, name: str) -> ChannelDefinition:
        """Drop a channel."""
        with self._lock:
            dropped = self.channel(name)
            self._write(self._datasets, self._channels.changed(name, None))
            return dropped

    def _load(
        self,
        definitions: _Definitions[Definition],
        overrides: Mapping[str, Override],
        parse: Callable[[str, Table], Definition],
    ) -> None:
        """Apply the overrides of declarations that have not changed since."""
        for name, override in overrides.items():
            if override.over != _hash(definitions.declared_table(name)):
                self.superseded.append(f"{definitions.kind}s.{name}")
                continue
            definitions.overrides[name] = override
            if override.now is None:
                definitions.current.pop(name, None)
                continue
            try:
                definitions.current[name] = parse(name, override.now)
            except BadInput as error:
                raise BadApp(f"{self._path}: {error}") from error

    def _require_same_records(self, name: str, dataset: Dataset) -> None:
        if recorded := self._recorded.get(name):
            require_same_records(parse_dataset(name, recorded), dataset)

    def _parse_channel(self, name: str, table: Table) -> ChannelDefinition:
        return parse_channel(name, table, self._datasets.current, self.defaults)

    def _write(self, datasets: _Definitions[Dataset], channels: _Definitions[ChannelDefinition]) -> None:
        """Write the file of the catalog; then use these definitions."""
        file = _CatalogFile(
            datasets=datasets.overrides,
            channels=channels.overrides,
            recorded=self._recorded | {name: dataset_table(one) for name, one in datasets.current.items()},
            streams={name: StreamKey(one.new, list(one.parameters)) for name, one in channels.current.items()},
        )
        # Not sorted: the order of a channel's parameters and of a dataset's fields has a meaning.
        text = msgspec.json.format(msgspec.json.encode(file), indent=1)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if not self._path.exists() or self._path.read_bytes() != text:
                write_atomically(self._path, text)
        except OSError as error:
            if error.errno in FULL:
                raise NoRoom(f"{self._path}: the disk is full; nothing was changed") from error
            raise BadApp(f"{self._path}: cannot be written ({error.strerror})") from error
        self._datasets, self._channels, self._recorded = datasets, channels, file.recorded


def require_same_records(before: Dataset, after: Dataset) -> None:
    """Raise Conflict if recorded publications do not fit the change of a dataset."""
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


def require_same_streams(before: ChannelDefinition, after: ChannelDefinition) -> None:
    """Raise Conflict if existing streams do not fit the change of a channel."""
    place = f"channels.{after.name}"
    if before.new != after.new:
        raise Conflict(f"{place}.new: was '{before.new}' and cannot become '{after.new}'; use a new name")
    if before.parameters != after.parameters:
        old, new = (
            ", ".join(f"{one.name} {one.type}" for one in channel.parameters) or "none"
            for channel in (before, after)
        )
        raise Conflict(f"{place}.parameters: were ({old}) and cannot become ({new}); use a new name")


def recorded_channels(path: Path) -> dict[str, str]:
    """Return the channels in the file of a catalog, each with its new dataset."""
    return {name: streams.new for name, streams in _read(path).streams.items()}


def _read(path: Path) -> _CatalogFile:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_CatalogFile)
    except FileNotFoundError:
        return _CatalogFile()
    except msgspec.DecodeError as error:
        raise BadApp(f"{path}: not a valid catalog ({error}); restore a copy, or remove it") from error
    except OSError as error:
        raise BadApp(f"{path}: cannot be read ({error.strerror})") from error


def _hash(table: Table | None) -> str | None:
    if table is None:
        return None
    text = json.dumps(table, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _spelled(type_: str, optional: bool) -> str:
    return f"'{type_}{'?' if optional else ''}'"


def _named(key: str | None) -> str:
    return "absent" if key is None else f"'{key}'"
