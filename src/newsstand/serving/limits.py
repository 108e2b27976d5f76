"""What subscribers may have at most: one table of limits for the coordinator and all brokers of a platform."""

from __future__ import annotations

from typing import Annotated

import msgspec

from newsstand.errors import BadOption, LimitReached
from newsstand.serving.settings import plainly

MOST_SESSIONS = 100
"""Sessions of one subscriber that a coordinator keeps."""
Count = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
Sessions = Annotated[int, msgspec.Meta(ge=1, le=MOST_SESSIONS)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `limits`: totals, one rate, and sizes in bytes."""

    accounts: Count = 1_000_000
    """Subscribers of the platform: the coordinator counts them, or a broker that has none."""
    registrations_per_hour: Count = 1_000
    """Registrations from one client address."""
    sessions: Sessions = MOST_SESSIONS
    """Sessions of one subscriber; the one that ends first makes room for a new one."""
    subscriptions: Count = 1_000
    """Subscriptions of one subscriber to channels."""
    sockets: Count = 100
    """WebSockets of one subscriber."""
    filters: Count = 1_000
    """Subscriptions of one subscriber to topics, over all its WebSockets."""
    value_bytes: Count = 4_096
    """One value of a subscription, as JSON in UTF-8."""
    values_bytes: Count = 16_384
    """All values of a subscription, as JSON in UTF-8."""

    def require(self, name: str, held: int, what: str) -> None:
        """Raise LimitReached if there is no room for one more; `what` is counted by the limit of that name."""
        most: int = getattr(self, name)
        if held >= most:
            raise LimitReached(f"limits.{name} allows {most} {what}, and there is no room for another")


def read_limits(value: object) -> Limits:
    """Limits as a table gives them; raise BadOption."""
    known = Limits.__struct_fields__
    for key in value if isinstance(value, dict) else ():
        if key not in known:
            raise BadOption(f"{key}: is not known; known: {', '.join(known)}")
    try:
        return msgspec.convert(value, Limits)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$.")
        message = plainly(message)
        raise BadOption(f"{place.rstrip('`')}: {message}" if place else message) from None
