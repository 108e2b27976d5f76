"""When a push-cache asks the origin whether a copy is still good."""

from __future__ import annotations

CHECK_SHARE = 0.1


def must_check(now: float, checked: float, modified: float, share: float = CHECK_SHARE) -> bool:
    """Whether more time has passed since a copy's last check than that share of its age.

    The rule of the Alex file system (Cate 1992): what has not changed for long will hardly change soon.

    >>> day = 86_400.0
    >>> must_check(now=30 * day, checked=28 * day, modified=0.0), must_check(30 * day, 26 * day, 0.0)
    (False, True)
    """
    return now - checked > share * max(0.0, now - modified)
