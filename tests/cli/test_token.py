"""`newsstand token`: tokens are accepted by the parts, and mistakes are one line."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from newsstand.auth.api_tokens import ApiTokens
from newsstand.auth.credentials import Operators, broker_credential, webhook_key
from newsstand.cli.main import run
from newsstand.coordinator.api.context import Authenticator, Caller

SECRET = "a secret of at least thirty-two characters"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "platform.secret"
    file.write_text(f"{SECRET}\n")
    return file


def made(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert run(["token", *map(str, words)]) == 0
    return capsys.readouterr().out.strip()


def test_broker_credential_is_accepted_by_coordinator_and_cluster(
    secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = made(capsys, "broker", "north", "--secret-file", secret)
    assert text == broker_credential(SECRET, "north")
    assert json.loads(made(capsys, "broker", "north", "--secret-file", secret, "--json"))["token"] == text
    assert Authenticator(SECRET).caller(text) == Caller("broker", "north")
    tokens = ApiTokens([], SECRET)
    holder = tokens.holder(text)
    assert holder is not None
    assert (holder.name, holder.scopes) == ("broker north", frozenset(["broker:north"]))
    assert tokens.webhook_key(text) == webhook_key(text)
    assert tokens.webhook_key(made(capsys, "operator", "--name", "ann", "--secret-file", secret)) is None
    assert ApiTokens([]).holder(text) is None


def test_operator_token_is_known_by_name(secret: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = json.loads(made(capsys, "operator", "--name", "ann", "--secret-file", secret, "--days", 7, "--json"))
    assert 6.9 < (output["expires"] - time.time()) / 86_400 < 7.1
    assert Authenticator(SECRET).caller(output["token"]) == Caller("operator", "ann")
    holder = ApiTokens([], SECRET).holder(output["token"])
    assert holder is not None
    assert (holder.name, holder.is_admin) == ("operator ann", True)
    at_north = made(capsys, "operator", "--name", "ann", "--secret-file", secret, "--broker", "north")
    assert Authenticator(SECRET).caller(at_north) is None
    north = Operators.of_broker(broker_credential(SECRET, "north"), None)
    assert north.holder(at_north, time.time()) is not None


def test_metrics_token_reads_only_metrics(secret: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = made(capsys, "operator", "--name", "prometheus", "--scope", "metrics", "--secret-file", secret)
    assert Authenticator(SECRET).caller(text) == Caller("metrics", "prometheus")
    holder = ApiTokens([], SECRET).holder(text)
    assert holder is not None
    assert holder.scopes == frozenset(["metrics"])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["broker", "North", "--secret-file", "SECRET"], "broker 'North': a name is a lower-case letter"),
        (["broker", "north", "--secret-file", "nowhere"], "nowhere: cannot be read"),
        (
            ["operator", "--name", "ann", "--scope", "root", "--secret-file", "SECRET"],
            "--scope root: must be one of",
        ),
        (["operator", "--name", "ann", "--days", "0", "--secret-file", "SECRET"], "--days 0: must be above 0"),
        (["operator", "--name", "ann", "--broker", "X", "--secret-file", "SECRET"], "broker 'X': a name is"),
        (["operator", "--name", "ann"], "Missing option '--secret-file'"),
    ],
)
def test_mistake_is_one_line(
    secret: Path, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    assert run(["token", *(str(secret) if word == "SECRET" else word for word in words)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert complaint in output.err
    assert len(output.err.splitlines()) == 1
