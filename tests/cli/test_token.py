"""`newsstand token`: what it makes is accepted by the parts, and what it cannot make it refuses in one line."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from newsstand.cli.main import run
from newsstand.cluster.tokens import Tokens
from newsstand.coordinator.desk import Caller, Keys
from newsstand.serving.credentials import Operators, broker_credential, webhook_key

SECRET = "a secret of at least thirty-two characters"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "platform.secret"
    file.write_text(f"{SECRET}\n")
    return file


def made(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert run(["token", *map(str, words)]) == 0
    return capsys.readouterr().out.strip()


def test_a_credential_of_a_broker_is_known_by_coordinator_and_cluster(
    secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = made(capsys, "broker", "north", "--secret-file", secret)
    assert text == broker_credential(SECRET, "north")
    assert json.loads(made(capsys, "broker", "north", "--secret-file", secret, "--json"))["token"] == text
    assert Keys(SECRET).caller(text) == Caller("broker", "north")
    tokens = Tokens([], SECRET)
    holder = tokens.holder(text)
    assert holder is not None
    assert (holder.name, holder.scopes) == ("broker north", frozenset(["broker:north"]))
    assert tokens.webhook_key(text) == webhook_key(text)
    assert tokens.webhook_key(made(capsys, "operator", "--name", "ann", "--secret-file", secret)) is None
    assert Tokens([]).holder(text) is None


def test_a_token_of_an_operator_is_known_by_its_name(secret: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(made(capsys, "operator", "--name", "ann", "--secret-file", secret, "--days", 7, "--json"))
    assert 6.9 < (told["expires"] - time.time()) / 86_400 < 7.1
    assert Keys(SECRET).caller(told["token"]) == Caller("operator", "ann")
    holder = Tokens([], SECRET).holder(told["token"])
    assert holder is not None
    assert (holder.name, holder.is_admin) == ("operator ann", True)
    at_north = made(capsys, "operator", "--name", "ann", "--secret-file", secret, "--broker", "north")
    assert Keys(SECRET).caller(at_north) is None
    north = Operators.of_broker(broker_credential(SECRET, "north"), None)
    assert north.holder(at_north, time.time()) is not None


def test_a_token_for_metrics_reads_metrics_alone(secret: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = made(capsys, "operator", "--name", "prometheus", "--scope", "metrics", "--secret-file", secret)
    assert Keys(SECRET).caller(text) == Caller("metrics", "prometheus")
    holder = Tokens([], SECRET).holder(text)
    assert holder is not None
    assert holder.scopes == frozenset(["metrics"])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["broker", "North", "--secret-file", "SECRET"], "broker 'North': a name is a lower-case letter"),
        (["broker", "north", "--secret-file", "nowhere"], "nowhere: cannot be read"),
        (["operator", "--name", "ann", "--scope", "root", "--secret-file", "SECRET"], "--scope root: is none of"),
        (["operator", "--name", "ann", "--days", "0", "--secret-file", "SECRET"], "--days 0: must be above 0"),
        (["operator", "--name", "ann", "--broker", "X", "--secret-file", "SECRET"], "broker 'X': a name is"),
        (["operator", "--name", "ann"], "Missing option '--secret-file'"),
    ],
)
def test_a_mistake_is_one_line(
    secret: Path, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    assert run(["token", *(str(secret) if word == "SECRET" else word for word in words)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert complaint in told.err
    assert len(told.err.splitlines()) == 1
