"""`newsstand token`: tokens of publishers, credentials of brokers, tokens of operators."""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path
from typing import Annotated

import typer

from newsstand.cli.options import Json
from newsstand.cli.progress import say
from newsstand.errors import BadOption

app = typer.Typer(help="Make tokens for the cluster, for brokers and for operators.", no_args_is_help=True)

SecretFile = Annotated[
    Path, typer.Option("--secret-file", metavar="FILE", help="The secret of the platform, or of a lone broker.")
]


@app.command("cluster")
def cluster(
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope", metavar="SCOPE", help="admin, read, metrics, publish:DATASET or broker:NAME; repeatable."
        ),
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What the logs call its holder.")],
    as_json: Json = False,
) -> None:
    """Make a token of the cluster: print it once, with the lines of newsstand.toml that make it known.

    Example: newsstand token cluster --scope publish:emergencies --name gate
    """
    from newsstand.cluster.tokens import new_token, token_lines

    text, made = new_token(name, scope, secrets.token_bytes(32))
    if as_json:
        print(json.dumps({"token": text, "name": name, "sha256": made.sha256, "scopes": sorted(made.scopes)}))
        return
    print(text)
    say("The token is above; it is not kept anywhere. Paste this into newsstand.toml:\n")
    print(token_lines(made), end="")


@app.command("broker")
def broker(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the broker.")],
    secret_file: SecretFile,
    as_json: Json = False,
) -> None:
    """Print the credential of a broker: cluster and coordinator know it by the platform's secret and its name.

    It does not expire. The same secret and name give the same credential.

    Example: newsstand token broker north --secret-file platform.secret
    """
    from newsstand.serving.credentials import broker_credential

    text = broker_credential(_secret_in(secret_file), _broker_name(name))
    print(json.dumps({"token": text, "broker": name}) if as_json else text)


@app.command("operator")
def operator(
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What the logs call its holder.")],
    secret_file: SecretFile,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="SCOPE", help="operator (everything; default) or metrics; repeatable."),
    ] = None,
    days: Annotated[float, typer.Option("--days", metavar="N", help="When it expires.")] = 30.0,
    at_broker: Annotated[
        str | None,
        typer.Option("--broker", metavar="NAME", help="A token for this broker, not for coordinator and cluster."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a token of an operator, for coordinator and cluster or for one broker, and print it.

    A token with the scope metrics alone is good at every part. A token is good until it expires, or until the
    platform gets another secret.

    Example: newsstand token operator --name ann --secret-file platform.secret --days 7
    """
    from newsstand.serving.credentials import operator_token

    scopes = scope or ["operator"]
    if at_broker is not None:
        _broker_name(at_broker)
    now_s = time.time()
    text = operator_token(_secret_in(secret_file), name, scopes, now_s=now_s, days=days, broker=at_broker)
    if as_json:
        told = {"name": name, "scopes": sorted(set(scopes)), "broker": at_broker}
        print(json.dumps({"token": text, **told, "expires": int(now_s + days * 86_400)}))
        return
    print(text)


def _secret_in(file: Path) -> str:
    from newsstand.serving.settings import secret_of

    secret = secret_of(None, file)
    assert secret is not None
    return secret


def _broker_name(name: str) -> str:
    from newsstand.model import is_broker_name

    if not is_broker_name(name):
        raise BadOption(f"broker '{name}': a name is a lower-case letter, then at most 62 of a-z, 0-9, _ and -")
    return name
