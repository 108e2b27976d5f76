"""`newsstand user`: look at the accounts of subscribers, disable, delete and reset them."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from newsstand.cli.options import Json
from newsstand.cli.progress import say
from newsstand.cli.publish import error_of, trusted
from newsstand.errors import BadInput, BadOption, NewsstandError

if TYPE_CHECKING:
    import httpx

app = typer.Typer(help="Manage the accounts of subscribers.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The subscriber.")]
AppOption = Annotated[
    Path | None, typer.Option("--app", metavar="DIR", help="The app folder of a platform that `up` runs here.")
]
CoordinatorUrl = Annotated[str | None, typer.Option("--coordinator", metavar="URL", help="The coordinator.")]
BrokerUrl = Annotated[
    str | None, typer.Option("--broker", metavar="URL", help="A broker that has no coordinator.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="A token of an operator (or set NEWSSTAND_TOKEN)."),
]
SecretFile = Annotated[
    Path | None,
    typer.Option("--secret-file", metavar="FILE", help="The secret, to make such a token for this command."),
]


@app.command("list")
def list_(
    folder: AppOption = None,
    coordinator: CoordinatorUrl = None,
    broker: BrokerUrl = None,
    token_file: TokenFile = None,
    secret_file: SecretFile = None,
    after: Annotated[str, typer.Option("--after", metavar="NAME", help="Begin after this name.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="How many at most.")] = 1000,
    as_json: Json = False,
) -> None:
    """List accounts in the order of their names.

    Example: newsstand user list --coordinator http://127.0.0.1:8770 --secret-file platform.secret
    """
    found: list[dict[str, Any]] = []
    following: str | None = after
    with _client(folder, coordinator, broker, token_file, secret_file) as http:
        while following is not None and len(found) < limit:
            asked = {"after": following, "limit": str(min(1000, limit - len(found)))}
            page = _ask(http, "GET", "/subscribers", params=asked).json()
            found += page["subscribers"]
            following = page["next"]
    if as_json:
        print(json.dumps({"subscribers": found, "next": following}))
        return
    print(_table(found))
    if following is not None:
        say(f"more follow: --after {following}")


@app.command("show")
def show(
    name: Name,
    folder: AppOption = None,
    coordinator: CoordinatorUrl = None,
    broker: BrokerUrl = None,
    token_file: TokenFile = None,
    secret_file: SecretFile = None,
    as_json: Json = False,
) -> None:
    """Show one account.

    Example: newsstand user show ann --app my-app
    """
    with _client(folder, coordinator, broker, token_file, secret_file) as http:
        _show(_ask(http, "GET", _path(name)).json(), as_json)


@app.command("disable")
def disable(
    name: Name,
    folder: AppOption = None,
    coordinator: CoordinatorUrl = None,
    broker: BrokerUrl = None,
    token_file: TokenFile = None,
    secret_file: SecretFile = None,
    as_json: Json = False,
) -> None:
    """Disable an account: its tokens are refused and its connections closed; its subscriptions stay.

    Example: newsstand user disable ann --app my-app
    """
    with _client(folder, coordinator, broker, token_file, secret_file) as http:
        _show(_ask(http, "PUT", f"{_path(name)}/disabled").json(), as_json)


@app.command("enable")
def enable(
    name: Name,
    folder: AppOption = None,
    coordinator: CoordinatorUrl = None,
    broker: BrokerUrl = None,
    token_file: TokenFile = None,
    secret_file: SecretFile = None,
    as_json: Json = False,
) -> None:
    """Enable an account that was disabled; its sessions go on.

    Example: newsstand user enable ann --app my-app
    """
    with _client(folder, coordinator, broker, token_file, secret_file) as http:
        _show(_ask(http, "DELETE", f"{_path(name)}/disabled").json(), as_json)


@app.command("delete")
def delete(
    name: Name,
    folder: AppOption = None,
    coordinator: CoordinatorUrl = None,
    broker: BrokerUrl = None,
    token_file: TokenFile = None,
    secret_file: SecretFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete an account with its sessions and subscriptions, for good.

    Example: newsstand user delete ann --app my-app --yes
    """
    with _client(folder, coordinator, broker, token_file, secret_file) as http:
        if not yes:
            _confirm(_ask(http, "GET", _path(name)).json())
        _ask(http, "DELETE", _path(name))
    print(json.dumps({"deleted": name}) if as_json else f"{name}: deleted")


@app.command("reset")
def reset(
    name: Name,
    folder: AppOption = None,
    coordinator: CoordinatorUrl = None,
    broker: BrokerUrl = None,
    token_file: TokenFile = None,
    secret_file: SecretFile = None,
    from_stdin: Annotated[
        bool, typer.Option("--stdin", help="Read the password from the first line of standard input.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Give an account another password and end its sessions; print the password, unless it is read.

    Example: newsstand user reset ann --app my-app
    """
    password = sys.stdin.readline().rstrip("\r\n") if from_stdin else secrets.token_urlsafe(12)
    with _client(folder, coordinator, broker, token_file, secret_file) as http:
        _ask(http, "PUT", f"{_path(name)}/password", json={"password": password})
    made = None if from_stdin else password
    if as_json:
        print(json.dumps({"name": name, "password": made}))
    elif made is not None:
        print(made)
        say(f"The new password of {name} is above; it is not kept anywhere. All sessions have ended.")
    else:
        print(f"{name}: has the new password; all sessions have ended")


def _client(
    folder: Path | None,
    coordinator: str | None,
    broker: str | None,
    token_file: Path | None,
    secret_file: Path | None,
) -> httpx.Client:
    import httpx

    if sum(one is not None for one in (folder, coordinator, broker)) != 1:
        raise BadOption("whose accounts? Give one of --app DIR, --coordinator URL and --broker URL")
    address = coordinator or broker
    if folder is not None:
        address, made = _running(folder)
        secret_file = secret_file or made
    assert address is not None
    headers = {"Authorization": f"Bearer {_token(token_file, secret_file)}"}
    verify = trusted(os.environ.get("SSL_CERT_FILE"))
    try:
        return httpx.Client(base_url=address, headers=headers, timeout=30, trust_env=False, verify=verify)
    except (httpx.InvalidURL, ValueError) as error:
        raise BadOption(f"{address}: {error}") from error


def _running(folder: Path) -> tuple[str, Path]:
    """The coordinator of the platform of an app on this machine, and the file of its secret."""
    from newsstand.cli.publish import located_app
    from newsstand.platform.folder import PlatformFolder
    from newsstand.platform.parts import reached
    from newsstand.serving.settings import read_toml

    platform = PlatformFolder(located_app(folder).data.absolute())
    file = platform.coordinator / "coordinator.toml"
    if not file.is_file():
        raise BadOption(f"--app {folder}: no platform has run over {platform.path}; give --coordinator URL")
    table: Any = read_toml(file)["coordinator"]
    scheme = "https" if "certificate" in table else "http"
    return reached(scheme, table["host"], table["port"]), platform.secret_file


def _token(token_file: Path | None, secret_file: Path | None) -> str:
    from newsstand.serving.credentials import operator_token
    from newsstand.serving.settings import secret_of, token_in

    if token_file is not None:
        return token_in(token_file, "--token-file ")
    if secret_file is None and (given := os.environ.get("NEWSSTAND_TOKEN", "").strip()):
        if not given.isascii() or not given.isprintable():
            raise BadOption("NEWSSTAND_TOKEN: has characters that no token has")
        return given
    secret = secret_of(None, secret_file)
    if secret is None:
        raise BadOption("no token: give --token-file FILE or --secret-file FILE, or set NEWSSTAND_TOKEN")
    return operator_token(secret, "newsstand-user", ["operator"], now_s=time.time(), days=1 / 24)


def _ask(http: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
    import httpx

    try:
        response = http.request(method, path, **more)
    except httpx.HTTPError as error:
        raise NewsstandError(f"{http.base_url}: does not answer ({error or type(error).__name__})") from error
    if response.is_success:
        return response
    problem = f"{http.base_url}: {error_of(response)}"
    if response.status_code >= 500:
        raise NewsstandError(problem)
    raise BadInput(problem)


def _path(name: str) -> str:
    return f"/subscribers/{quote(name, safe='')}"


def _confirm(account: dict[str, Any]) -> None:
    name = account["name"]
    if not sys.stdin.isatty():
        raise BadOption(f"delete {name}: is asked for on a terminal; give --yes to delete without")
    question = f"Delete {name} with {account['subscriptions']} subscriptions?"
    if not typer.confirm(question, err=True):
        raise BadOption(f"{name}: is not deleted")


def _show(account: dict[str, Any], as_json: bool) -> None:
    print(json.dumps(account) if as_json else _table([account]))


def _table(accounts: list[dict[str, Any]]) -> str:
    rows = [("name", "broker", "subscriptions", "sessions", "state", "created")]
    for one in accounts:
        created = one["created"]
        when = "unknown" if created is None else datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%d %H:%M")
        counts = (str(one["subscriptions"]), str(one["sessions"]))
        rows.append((one["name"], one["broker"], *counts, one["state"], when))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
