"""What a subscriber may subscribe to: by the limits of its token, and by the rules of the operator.

The limits of a token are its holder's own wish, and protect nobody from the holder. What the operator binds holds
for every token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from newsstand.broker.records import Allowed
from newsstand.errors import BadValues, NewsstandError
from newsstand.model import Channel, Scalar, Values
from newsstand.serving.limits import Limits


class Forbidden(NewsstandError):
    """A rule of the operator forbids what a subscriber asks for; the message has the rule."""


def bound_values(
    channel: Channel, given: Mapping[str, Scalar] | Sequence[Scalar], subscriber: str
) -> dict[str, Scalar] | list[Scalar]:
    """Fill in the values that the operator's rules bind; raise Forbidden if another value is given.

    >>> near_user = Channel("near_user", "", "", (), bind=(("user", "subscriber"),))
    >>> bound_values(near_user, {}, "ann")
    {'user': 'ann'}
    """
    if isinstance(given, Mapping):
        return {
            **given,
            **{name: _bound(channel, name, given.get(name, subscriber), subscriber) for name, _ in channel.bind},
        }
    names = [one.name for one in channel.parameters]
    for name, value in zip(names, given, strict=False):
        if name in dict(channel.bind):
            _bound(channel, name, value, subscriber)
    return list(given)


def follows_rules(channel: Channel, values: Mapping[str, Scalar], subscriber: str) -> bool:
    """Whether a subscription that exists still has the values that the operator's rules bind."""
    return all(values.get(name) == subscriber for name, _ in channel.bind)


def _bound(channel: Channel, name: str, value: Scalar, subscriber: str) -> Scalar:
    if value != subscriber:
        raise Forbidden(
            f"channel '{channel.name}': parameter '{name}' is bound to the subscriber's name; "
            f"leave it out, or give '{subscriber}'"
        )
    return value


def require_sizes(limits: Limits, channel: Channel, values: Values) -> None:
    """Raise BadValues if the values of a subscription are larger than the limits."""
    total = 2
    for parameter, value in zip(channel.parameters, values, strict=True):
        size = len(msgspec.json.encode(value))
        total += size + 1
        if size > limits.value_bytes:
            raise BadValues(
                f"channel '{channel.name}', parameter '{parameter.name}': the value has {size:,} bytes as JSON; "
                f"limits.value_bytes allows {limits.value_bytes:,}"
            )
    if total > limits.values_bytes:
        raise BadValues(
            f"channel '{channel.name}': the values have {total:,} bytes as JSON; "
            f"limits.values_bytes allows {limits.values_bytes:,}"
        )


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
