"""`newsstand user`: list, disable, delete and reset accounts of subscribers."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer
from typer import Argument, Option

from newsstand.cli.data.connection import open_http, request_json
from newsstand.cli.options import Commands, Json
from newsstand.cli.terminal import print_table, say
from newsstand.errors import BadOption

if TYPE_CHECKING:
    from newsstand.http.client import BlockingHttpClient

app = Commands(help="Manage the accounts of subscribers.")

TITLES = ("name", "broker", "subscriptions", "sessions", "state", "created")
Name = Annotated[str, Argument(metavar="NAME", help="The subscriber.")]


@dataclass(frozen=True)
class AccountServer:
    """The server that has the accounts, and the token for it."""

    app: Annotated[Path | None, "DIR", "The app folder of a platform that `up` runs here."] = None
    coordinator: Annotated[str | None, "URL", "The coordinator."] = None
    broker: Annotated[str | None, "URL", "A broker that has no coordinator."] = None
    token_file: Annotated[Path | None, "FILE", "A token of an operator (or set NEWSSTAND_TOKEN)."] = None
    secret_file: Annotated[Path | None, "FILE", "The secret, to make such a token for this command."] = None

    def connect(self) -> BlockingHttpClient:
        """Return a client of the server."""
        if sum(one is not None for one in (self.app, self.coordinator, self.broker)) != 1:
            raise BadOption("give exactly one of --app DIR, --coordinator URL and --broker URL")
        address, secret_file = self.coordinator or self.broker, self.secret_file
        if self.app is not None:
            address, made = _running(self.app)
            secret_file = secret_file or made
        assert address is not None
        return open_http(address, _token(self.token_file, secret_file), 30)


@app.command("list")
def list_(
    server: AccountServer,
    after: Annotated[str, "NAME", "Begin after this name."] = "",
    limit: Annotated[int, Option(min=1, metavar="N", help="How many at most.")] = 1000,
    as_json: Json = False,
) -> None:
    """List accounts in the order of their names.

    Example: newsstand user list --coordinator http://127.0.0.1:8770 --secret-file platform.secret
    """
    found: list[dict[str, Any]] = []
    following: str | None = after
    with server.connect() as http:
        while following is not None and len(found) < limit:
            query = {"after": following, "limit": str(min(1000, limit - len(found)))}
            page = request_json(http, "GET", "/subscribers", params=query)
            found += page["subscribers"]
            following = page["next"]
    if as_json:
        print(json.dumps({"subscribers": found, "next": following}))
        return
    _print_accounts(found)
    if following is not None:
        say(f"more follow: --after {following}")


@app.command("show")
def show(server: AccountServer, name: Name, as_json: Json = False) -> None:
    """Show one account.

    Example: newsstand user show ann --app my-app
    """
    _show(server, "GET", _path(name), as_json)


@app.command("disable")
def disable(server: AccountServer, name: Name, as_json: Json = False) -> None:
    """Disable an account: its tokens are rejected and its connections closed; its subscriptions stay.

    Example: newsstand user disable ann --app my-app
    """
    _show(server, "PUT", f"{_path(name)}/disabled", as_json)


@app.command("enable")
def enable(server: AccountServer, name: Name, as_json: Json = False) -> None:
    """Enable an account that was disabled; its sessions go on.

    Example: newsstand user enable ann --app my-app
    """
    _show(server, "DELETE", f"{_path(name)}/disabled", as_json)


@app.command("delete")
def delete(
    server: AccountServer, name: Name, yes: Annotated[bool, "Do not ask."] = False, as_json: Json = False
) -> None:
    """Delete an account with its sessions and subscriptions, for good.

    Example: newsstand user delete ann --app my-app --yes
    """
    with server.connect() as http:
        if not yes:
            _confirm(request_json(http, "GET", _path(name)))
        request_json(http, "DELETE", _path(name))
    print(json.dumps({"deleted": name}) if as_json else f"{name}: deleted")


@app.command("reset")
def reset(
    server: AccountServer,
    name: Name,
    from_stdin: Annotated[
        bool, Option("--stdin", help="Read the password from the first line of standard input.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Give an account another password and end its sessions; print the password, unless it is read.

    Example: newsstand user reset ann --app my-app
    """
    password = sys.stdin.readline().rstrip("\r\n") if from_stdin else secrets.token_urlsafe(12)
    with server.connect() as http:
        request_json(http, "PUT", f"{_path(name)}/password", json={"password": password})
    made = None if from_stdin else password
    if as_json:
        print(json.dumps({"name": name, "password": made}))
    elif made is not None:
        print(made)
        say(f"The new password of {name} is above; it is not stored anywhere. All sessions have ended.")
    else:
        print(f"{name}: has the new password; all sessions have ended")


def _running(folder: Path) -> tuple[str, Path]:
    """Return the coordinator of an app's platform on this machine, and the file of its secret."""
    from newsstand.cli.data.connection import located_app
    from newsstand.config.files import read_toml
    from newsstand.platform.data_folder import PlatformFolder
    from newsstand.platform.processes import reachable_url

    platform = PlatformFolder(located_app(folder).data.absolute())
    file = platform.coordinator / "coordinator.toml"
    if not file.is_file():
        raise BadOption(f"--app {folder}: no platform has used {platform.path}; give --coordinator URL")
    table: Any = read_toml(file)["coordinator"]
    scheme = "https" if "certificate" in table else "http"
    return reachable_url(scheme, table["host"], table["port"]), platform.secret_file


def _token(token_file: Path | None, secret_file: Path | None) -> str:
    from newsstand.auth.credentials import operator_token
    from newsstand.config.types import read_secret, read_token

    if token_file is not None:
        return read_token(token_file, "--token-file ")
    if secret_file is None and (given := os.environ.get("NEWSSTAND_TOKEN", "").strip()):
        if not given.isascii() or not given.isprintable():
            raise BadOption("NEWSSTAND_TOKEN: must be printable ASCII; copy the token again")
        return given
    secret = read_secret(None, secret_file)
    if secret is None:
        raise BadOption("no token: give --token-file FILE or --secret-file FILE, or set NEWSSTAND_TOKEN")
    return operator_token(secret, "newsstand-user", ["operator"], now_s=time.time(), days=1 / 24)


def _path(name: str) -> str:
    return f"/subscribers/{quote(name, safe='')}"


def _confirm(account: dict[str, Any]) -> None:
    name = account["name"]
    if not sys.stdin.isatty():
        raise BadOption(f"delete {name}: not a terminal; give --yes to delete without a question")
    question = f"Delete {name} with {account['subscriptions']} subscriptions?"
    if not typer.confirm(question, err=True):
        raise BadOption(f"{name}: not deleted")


def _show(server: AccountServer, method: str, path: str, as_json: bool) -> None:
    with server.connect() as http:
        account = request_json(http, method, path)
    if as_json:
        print(json.dumps(account))
    else:
        _print_accounts([account])


def _print_accounts(accounts: list[dict[str, Any]]) -> None:
    print_table(TITLES, map(_row, accounts), left=TITLES)


def _row(account: dict[str, Any]) -> tuple[str, ...]:
    created = account["created"]
    when = "unknown" if created is None else datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%d %H:%M")
    return (*(str(account[title]) for title in TITLES[:-1]), when)
