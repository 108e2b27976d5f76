"""The keys of the tables of newsstand.toml, as a person writes them."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from newsstand.broker.settings import BrokerSettings
from newsstand.coordinator.server import CoordinatorSettings
from newsstand.platform.tables import COMMON, DECIDED


def keys_of(shape: type[msgspec.Struct], decided: Collection[str] = ()) -> tuple[str, ...]:
    """Return the keys of a table, except those that are `decided` otherwise."""
    return tuple(one.encode_name for one in msgspec.structs.fields(shape) if one.encode_name not in decided)


COORDINATOR_KEYS = keys_of(CoordinatorSettings, DECIDED)
BROKER_KEYS = keys_of(BrokerSettings, (*DECIDED, *COMMON))
