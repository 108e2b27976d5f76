"""Every error that Newsstand raises on purpose.

NewsstandError
├── BadInput            what the user gave is wrong: one line that names the place; exit code 2
│   ├── BadTrace        a table of a trace is missing, malformed or contradicts another
│   ├── BadOption       an option's value is out of range
│   ├── BadPolicyFile   a user's own policy cannot be loaded, compiled or scored
│   └── UnknownPolicy   no policy of that name
└── NoJava              Spark needs a Java runtime and none was found
"""


class NewsstandError(Exception):
    """The root: its message is one line meant for the user."""


class BadInput(NewsstandError):
    """The user's input is wrong."""


class BadTrace(BadInput):
    """A trace is missing something or contradicts itself."""


class BadOption(BadInput):
    """An option's value is out of range."""


class BadPolicyFile(BadInput):
    """A user's own policy cannot be loaded, compiled or scored."""


class UnknownPolicy(BadInput):
    """No policy has that name."""


class NoJava(NewsstandError):
    """No suitable Java runtime was found."""
