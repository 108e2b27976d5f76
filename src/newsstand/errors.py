"""Every error that Newsstand raises on purpose.

NewsstandError
├── BadInput            what the user gave is wrong: one line that names the place; exit code 2
│   ├── BadApp          newsstand.toml, or an object created while it runs, is malformed or contradicts another
│   ├── BadQuery        the body of a channel is not one query over datasets, or Spark cannot analyse it
│   ├── BadValues       the values of a subscription do not fit the parameters of its channel
│   ├── NotFound        no dataset, channel, broker, subscription or page of that name
│   ├── BadTrace        a table of a trace is missing, malformed or contradicts another
│   ├── BadOption       an option's value is out of range
│   ├── LogDamage       a file of the ingest log is damaged
│   ├── BadFilter       a filter is not of the filter language, too long or too deep
│   ├── BadMessage      what a broker was sent is not a message of the overlay
│   ├── BadNetwork      a file that describes a network is malformed
│   ├── BadPolicyFile   a user's own policy cannot be loaded, compiled or scored
│   └── UnknownPolicy   no policy of that name
├── LimitReached        a limit of the settings is reached: something has to go first
├── Duplicate           another process acts as the broker of that name
├── Busy                more is coming in than goes out: try again after a while
├── Unavailable         a database is locked or away: nothing was changed, try again after a while
├── NoRoom              the disk is full: nothing was added, and what was accepted before is intact
└── NoJava              Spark needs a Java runtime and none was found
"""


class NewsstandError(Exception):
    """The root: its message is one line meant for the user."""


class BadInput(NewsstandError):
    """The user's input is wrong."""


class BadApp(BadInput):
    """newsstand.toml, or an object created while the cluster runs, is malformed or contradicts another."""


class BadQuery(BadInput):
    """The body of a channel is not one query over datasets, or Spark cannot analyse it."""


class BadValues(BadInput):
    """The values of a subscription do not fit the parameters of its channel."""


class NotFound(BadInput):
    """Nothing has that name."""


class BadTrace(BadInput):
    """A trace is missing something or contradicts itself."""


class BadOption(BadInput):
    """An option's value is out of range."""


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


class Duplicate(NewsstandError):
    """Another process acts as the broker of that name; `lease_s` is how long a silent one keeps the name."""

    def __init__(self, message: str, lease_s: float) -> None:
        super().__init__(message)
        self.lease_s = lease_s


class Busy(NewsstandError):
    """More is coming in than goes out; `after_s` is when to try again."""

    def __init__(self, message: str, after_s: float = 1.0) -> None:
        super().__init__(message)
        self.after_s = after_s


class Unavailable(NewsstandError):
    """A database is locked or away; `reason` says so to anybody, without names of hosts and files."""

    def __init__(self, message: str, reason: str, after_s: float = 2.0) -> None:
        super().__init__(message)
        self.reason = reason
        self.after_s = after_s


class NoRoom(NewsstandError):
    """The disk is full: nothing was added, and what was accepted before is intact."""


class NoJava(NewsstandError):
    """No suitable Java runtime was found."""
