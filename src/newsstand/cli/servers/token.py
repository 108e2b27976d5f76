"""`newsstand token`: tokens of publishers, credentials of brokers, tokens of operators."""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from newsstand.cli.options import Commands, Json
from newsstand.cli.terminal import say
from newsstand.errors import BadOption

app = Commands(help="Make tokens for the cluster, for brokers and for operators.")

SecretFile = Annotated[
    Path, Option("--secret-file", metavar="FILE", help="The secret of the platform, or of a lone broker.")
]


@app.command("cluster")
def cluster(
    scope: Annotated[list[str], "SCOPE", "admin, read, metrics, publish:DATASET or broker:NAME; repeatable."],
    name: Annotated[str, "NAME", "What the logs call its holder."],
    as_json: Json = False,
) -> None:
    """Make a token of the cluster: print it once, with the lines of newsstand.toml that make it known.

    Example: newsstand token cluster --scope publish:emergencies --name gate
    """
    from newsstand.auth.api_tokens import new_token, token_lines

    text, made = new_token(name, scope, secrets.token_bytes(32))
    if as_json:
        print(json.dumps({"token": text, "name": name, "sha256": made.sha256, "scopes": sorted(made.scopes)}))
        return
    print(text)
    say("The token is above; it is not stored anywhere. Paste this into newsstand.toml:\n")
    print(token_lines(made), end="")


@app.command("broker")
def broker(
    name: Annotated[str, Argument(metavar="NAME", help="The name of the broker.")],
    secret_file: SecretFile,
    as_json: Json = False,
) -> None:
    """Print the credential of a broker: cluster and coordinator know it by the platform's secret and its name.

    It does not expire. The same secret and name give the same credential.

    Example: newsstand token broker north --secret-file platform.secret
    """
    from newsstand.auth.credentials import broker_credential

    text = broker_credential(_secret_in(secret_file), _broker_name(name))
    print(json.dumps({"token": text, "broker": name}) if as_json else text)


@app.command("operator")
def operator(
    name: Annotated[str, "NAME", "What the logs call its holder."],
    secret_file: SecretFile,
    scope: Annotated[list[str] | None, "SCOPE", "operator (everything; default) or metrics; repeatable."] = None,
    days: Annotated[float, "N", "When it expires."] = 30.0,
    at_broker: Annotated[
        str | None,
        Option("--broker", metavar="NAME", help="A token for this broker, not for coordinator and cluster."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a token of an operator, for coordinator and cluster or for one broker, and print it.

    A token with the scope metrics alone is good at every part. A token is good until it expires, or until the
    platform gets another secret.

    Example: newsstand token operator --name ann --secret-file platform.secret --days 7
    """
    from newsstand.auth.credentials import operator_token

    scopes = scope or ["operator"]
    if at_broker is not None:
        _broker_name(at_broker)
    now_s = time.time()
    text = operator_token(_secret_in(secret_file), name, scopes, now_s=now_s, days=days, broker=at_broker)
    if as_json:
        fields = {"name": name, "scopes": sorted(set(scopes)), "broker": at_broker}
        print(json.dumps({"token": text, **fields, "expires": int(now_s + days * 86_400)}))
        return
    print(text)


def _secret_in(file: Path) -> str:
    from newsstand.config.types import read_secret

    secret = read_secret(None, file)
    assert secret is not None
    return secret


def _broker_name(name: str) -> str:
    from newsstand.model import is_broker_name

    if not is_broker_name(name):
        raise BadOption(f"broker '{name}': a name is a lower-case letter, then at most 62 of a-z, 0-9, _ and -")
    return name
