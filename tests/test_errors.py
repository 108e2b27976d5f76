"""What errors say, in Python and on the command line."""

from __future__ import annotations

import pickle

import pytest

from newsstand.cli.options import message_of
from newsstand.errors import BadInput, BadOption


@pytest.mark.parametrize(
    ("error", "in_python", "on_the_command_line"),
    [
        (BadOption("no token"), "no token", "no token"),
        (BadOption("must be at least 1", slots=0), "slots 0: must be at least 1", "--slots 0: must be at least 1"),
        (BadOption("is missing", scope=None), "scope: is missing", "--scope: is missing"),
        (
            BadOption("too different", client_rate=1e-15, publish_rate=3.0),
            "client_rate 1e-15, publish_rate 3: too different",
            "--client-rate 1e-15, --publish-rate 3: too different",
        ),
    ],
)
def test_bad_option_names_fields_as_options_on_command_line(
    error: BadOption, in_python: str, on_the_command_line: str
) -> None:
    assert str(error) == in_python
    assert message_of(error) == on_the_command_line
    assert str(pickle.loads(pickle.dumps(error))) == in_python


def test_message_of_other_errors_is_their_text() -> None:
    assert message_of(BadInput("slots 0: no")) == "slots 0: no"
