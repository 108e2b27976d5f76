"""`newsstand page`: pages under names, at the cluster that is their origin."""

from __future__ import annotations

import json
import mimetypes
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from newsstand.cli.options import Json
from newsstand.cli.progress import say
from newsstand.cli.publish import TokenFile, Url, client_of, error_of, located_app, open_client
from newsstand.errors import BadInput, BadOption, NewsstandError

if TYPE_CHECKING:
    import httpx

UNKNOWN = "application/octet-stream"
"""The type of a page of which nothing else is known."""

app = typer.Typer(help="Put, list and drop pages that keep their name.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The page's name, such as sport/today.html.")]
App = Annotated[
    Path | None,
    typer.Option("--app", metavar="APP", help="The app folder, if it is not this folder; not needed with --url."),
]


@app.command("put")
def put(
    name: Name,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Its content; - for standard input.")],
    kind: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="Its media type, if not as the file's name says.")
    ] = None,
    folder: App = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Put a page under a name, in place of what is there. The same once more changes nothing.

    Example: newsstand page put sport/today.html today.html --app my-app
    """
    _require_name(name)
    headers = {"Content-Type": _type_of(name, file, kind)}
    with _opened(file) as content, _connected(folder, url, token_file) as client:
        answer = _asked(client, "PUT", f"/named/{name}", content=content, headers=headers)
    if answer.status_code == 413:
        raise BadInput(f"{'standard input' if file == '-' else file}: {error_of(answer)}")
    page = _accepted(answer)
    if as_json:
        print(json.dumps(page))
        return
    became = "new" if answer.status_code == 201 else "changed" if page["changed"] else "as it was"
    print(f"{name}: {became}, {page['size']:,} bytes, {page['type']}")


@app.command("drop")
def drop(
    name: Name, folder: App = None, url: Url = None, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """Drop the page of a name. Copies of it go when brokers next check them.

    Example: newsstand page drop sport/today.html --app my-app
    """
    _require_name(name)
    with _connected(folder, url, token_file) as client:
        dropped = _accepted(_asked(client, "DELETE", f"/named/{name}"))
    print(json.dumps(dropped) if as_json else f"{name}: dropped")


@app.command("list")
def list_(folder: App = None, url: Url = None, token_file: TokenFile = None, as_json: Json = False) -> None:
    """List the pages that have names, and when each was last changed (UTC).

    Example: newsstand page list --app my-app
    """
    pages: list[dict[str, Any]] = []
    after: str | None = ""
    with _connected(folder, url, token_file) as client:
        while after is not None:
            slice_ = _accepted(_asked(client, "GET", "/named", params={"after": after}))
            pages += slice_["pages"]
            after = slice_["next"]
    if as_json:
        print(json.dumps(pages))
        return
    if not pages:
        say("no page has a name yet; `newsstand page put NAME FILE` gives one")
    rows = [(one["name"], f"{one['size']:,}", one["type"], _time(one["modified_ms"])) for one in pages]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    for title, size, kind, changed in rows:
        print(f"{title:{widths[0]}}  {size:>{widths[1]}} bytes  {kind:{widths[2]}}  {changed}")


def _require_name(name: str) -> None:
    """What is no name must not get into an address."""
    from newsstand.model import is_page_name

    if not is_page_name(name):
        raise BadOption(
            f"NAME {name}: must be 1 to 200 of A-Z, a-z, 0-9, '.', '_', '~', '-' and '/', "
            "and no part between slashes may be empty, '.' or '..'"
        )


def _type_of(name: str, file: str, given: str | None) -> str:
    if given is None:
        found, encoding = mimetypes.guess_type(name if file == "-" else file)
        return found if found is not None and encoding is None else UNKNOWN
    if re.fullmatch(r"[\w.+-]+/[\w.+-]+( *;[ -~]+)?", given, re.ASCII) is None:
        raise BadOption(f"--type {given}: must be a media type, such as text/html")
    return given


@contextmanager
def _opened(file: str) -> Iterator[bytes | BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer.read()  # how much it is must be known before the first byte is sent
        return
    try:
        opened = open(file, "rb")  # noqa: SIM115  what goes wrong while it is open is no mistake about the file
    except FileNotFoundError:
        raise BadInput(f"{file}: no such file") from None
    except IsADirectoryError:
        raise BadInput(f"{file}: is a folder, not a file") from None
    except OSError as error:
        raise BadInput(f"{file}: cannot be read ({error.strerror})") from error
    with opened:
        yield opened


def _connected(folder: Path | None, url: str | None, token_file: Path | None) -> httpx.Client:
    """A client of the app's cluster; with an address no app is needed."""
    from newsstand.cluster.app_folder import FILE

    if folder is not None or (Path.cwd() / FILE).is_file():
        return open_client(located_app(folder or Path()), url, token_file)
    if url is None:
        raise BadOption(f"--app: there is no {FILE} here; name the app folder, or the cluster with --url")
    return client_of(url, None, token_file)


def _asked(client: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
    import httpx

    try:
        return client.request(method, path, **more)
    except httpx.TransportError as error:
        reason = error or type(error).__name__
        raise NewsstandError(
            f"the cluster at {client.base_url} does not answer ({reason}); "
            "start it with `newsstand up` or name its address with --url"
        ) from error
    except (httpx.InvalidURL, ValueError) as error:
        raise BadOption(f"--url {client.base_url}: {error}") from error


def _accepted(answer: httpx.Response) -> dict[str, Any]:
    """What the cluster answers; its complaint is ours."""
    if answer.status_code >= 500 or answer.status_code == 429:
        raise NewsstandError(f"{error_of(answer)}; try again later")
    if not answer.is_success:
        raise BadInput(error_of(answer))
    try:
        told = answer.json()
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise BadInput(f"{answer.url} is not a data cluster")
    return told


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
