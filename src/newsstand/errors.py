"""Every error that Newsstand raises on purpose.

NewsstandError: the message is one line meant for the user; exit code 1
├── BadInput: what the user gave is wrong, and the message names the place; exit code 2
│   ├── BadBody, BadApp, BadQuery, BadValues, NotFound, BadTrace, BadOption, LogDamage
│   └── BadFilter, BadMessage, BadNetwork, BadPolicyFile, UnknownPolicy
├── LimitReached, Duplicate, ResultsExpired, Busy, Unavailable, NoRoom
└── NoKeys, NoJava
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar


class NewsstandError(Exception):
    """The root: its message is one line meant for the user."""

    http_status: ClassVar[int] = 400
    """The status of an HTTP response that reports the error."""

    def problem(self) -> dict[str, object]:
        """Return the body of an HTTP response that reports the error."""
        return {"error": str(self)}


class BadInput(NewsstandError):
    """The user's input is wrong."""

    http_status = 422


class BadBody(BadInput):
    """The body of a request is not what it says it is."""

    http_status = 400


class BadApp(BadInput):
    """newsstand.toml, or an object created while the cluster runs, is malformed or contradicts another."""


class BadQuery(BadInput):
    """The body of a channel is not one query over datasets, or Spark cannot analyse it."""


class BadValues(BadInput):
    """The values of a subscription do not fit the parameters of its channel."""


class NotFound(BadInput):
    """Nothing has that name."""

    http_status = 404


class BadTrace(BadInput):
    """A trace is missing something or contradicts itself."""


class BadOption(BadInput):
    """The value of a field or option is out of range: `BadOption("must be at least 1", slots=0)` names the field.

    The text names fields as they are called in Python; the command line writes them as options, like other fields
    that the message names in backticks.

    >>> str(BadOption("must be at least 1", slots=0))
    'slots 0: must be at least 1'
    >>> BadOption("exists; set `force`", out="x").naming(lambda field: f"--{field}")
    '--out x: exists; set --force'
    """

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields

    def __str__(self) -> str:
        return self.naming(str)

    def naming(self, name: Callable[[str], str]) -> str:
        """Return the text with the name that `name` gives each field; a field without a value has None."""
        values = {
            name(field): f"{value:g}" if isinstance(value, float) else value
            for field, value in self.fields.items()
        }
        where = ", ".join(field if value is None else f"{field} {value}" for field, value in values.items())
        message = re.sub(r"`([a-z_]+)`", lambda field: name(field[1]), self.message)
        return f"{where}: {message}" if where else message


class LogDamage(BadInput):
    """A file of the ingest log is damaged: the message names it, the byte, and what to do."""


class BadFilter(BadInput):
    """A filter is not of the filter language, too long or too deep."""


class BadMessage(BadInput):
    """What a broker was sent is not a message of the overlay."""


class BadNetwork(BadInput):
    """A file that describes a network is malformed."""


class BadPolicyFile(BadInput):
    """A user's own policy cannot be loaded, compiled or scored."""


class UnknownPolicy(BadInput):
    """No policy has that name."""


class LimitReached(NewsstandError):
    """A limit of the settings is reached; the message names it."""

    http_status = 409

    def problem(self) -> dict[str, object]:
        return {**super().problem(), "reason": "limit"}


class Duplicate(NewsstandError):
    """Another process acts as the broker of that name; `lease_s` is how long a silent one keeps the name."""

    http_status = 409

    def __init__(self, message: str, lease_s: float) -> None:
        super().__init__(message)
        self.lease_s = lease_s

    def problem(self) -> dict[str, object]:
        return {**super().problem(), "reason": "duplicate", "lease_s": self.lease_s}


class ResultsExpired(NewsstandError):
    """Retention has removed requested results; `earliest` is the first position that remains."""

    http_status = 410

    def __init__(self, earliest: int) -> None:
        super().__init__(f"results before {earliest} were removed by retention")
        self.earliest = earliest

    def problem(self) -> dict[str, object]:
        return {**super().problem(), "earliest": self.earliest}


class Busy(NewsstandError):
    """More is coming in than goes out; `after_s` is when to try again."""

    http_status = 429

    def __init__(self, message: str, after_s: float = 1.0) -> None:
        super().__init__(message)
        self.after_s = after_s


class Unavailable(NewsstandError):
    """A database is locked or away; `reason` says so to anybody, without names of hosts and files."""

    http_status = 503

    def __init__(self, message: str, reason: str, after_s: float = 2.0) -> None:
        super().__init__(message)
        self.reason = reason
        self.after_s = after_s

    def problem(self) -> dict[str, object]:
        return {"error": self.reason}


class NoRoom(NewsstandError):
    """The disk is full: nothing was added, and what was accepted before is intact."""

    http_status = 507


class NoKeys(NewsstandError):
    """A broker that the coordinator has never accepted has no keys."""

    http_status = 503

    def __init__(self) -> None:
        super().__init__("this broker waits for the coordinator, which gives it its keys")


class NoJava(NewsstandError):
    """No suitable Java runtime was found."""


def first_line_of(error: BaseException) -> str:
    """Return the first line of an error's text, or its type.

    >>> first_line_of(OSError("no file\\nat all")), first_line_of(KeyError())
    ('no file', 'KeyError')
    """
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
