"""Every error that a client raises on purpose; each message is one line.

NewsstandError
└── ClientError
    ├── Unreachable     nobody answered within the deadline, or all were too busy
    ├── WrongPassword   no subscriber has this name and password
    ├── SessionEnded    the tokens are not good any more, and no password is known
    ├── Refused         the other side says no; `status` is its HTTP status
    │   ├── NotThere    404: no such channel, subscription, page or dataset
    │   └── Gone        410: retention has removed results; `earliest` is the first position that is left
    └── Misused         the client was called in a way that cannot work
"""

from __future__ import annotations

from newsstand.errors import NewsstandError


class ClientError(NewsstandError):
    """The root of what a client raises."""


class Unreachable(ClientError):
    """Nobody answered within the deadline, or all were too busy."""


class WrongPassword(ClientError):
    """No subscriber has this name and password."""


class SessionEnded(ClientError):
    """The tokens are not good any more, and no password is known to begin another session."""


class Refused(ClientError):
    """The other side says no."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class NotThere(Refused):
    """There is no such channel, subscription, page or dataset."""


class Gone(Refused):
    """Retention has removed the next results; `earliest` is the first position that is left."""

    def __init__(self, message: str, earliest: int) -> None:
        super().__init__(message, 410)
        self.earliest = earliest


class Misused(ClientError):
    """The client was called in a way that cannot work."""
