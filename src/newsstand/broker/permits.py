"""What a token may be used for: patterns of channels and of their parameters' values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from newsstand.broker.records import Allowed
from newsstand.model import Scalar


def permits(allow: Sequence[Allowed] | None, channel: str, values: Mapping[str, Scalar]) -> bool:
    """Whether a token with these limits, or none, may be used for a subscription.

    >>> fires = [Allowed("reports_*", {"kind": ["fire", "flood*"]})]
    >>> permits(fires, "reports_near", {"kind": "flood", "lat": 33.7})
    True
    >>> permits(fires, "reports_near", {"kind": "quake", "lat": 33.7})
    False
    """
    return allow is None or any(_fits(one, channel, values) for one in allow)


def permits_channel(allow: Sequence[Allowed] | None, channel: str) -> bool:
    """Whether there can be values of a channel that a token may be used for."""
    return allow is None or any(fnmatchcase(channel, one.channel) for one in allow)


def _fits(one: Allowed, channel: str, values: Mapping[str, Scalar]) -> bool:
    if not fnmatchcase(channel, one.channel):
        return False
    return all(name in values and _matches(wanted, values[name]) for name, wanted in one.values.items())


def _matches(wanted: Scalar | list[Scalar], value: Scalar) -> bool:
    if isinstance(wanted, list):
        return any(_matches(each, value) for each in wanted)
    if isinstance(wanted, str) and isinstance(value, str):
        return fnmatchcase(value, wanted)
    return isinstance(wanted, bool) == isinstance(value, bool) and wanted == value
