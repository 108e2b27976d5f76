"""`newsstand page`: named pages of a cluster, which is their origin."""

from __future__ import annotations

import json
import mimetypes
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

from typer import Argument, Option

from newsstand.cli.data.connection import ClusterOptions, body_of, located_app, request, request_json, request_list
from newsstand.cli.options import Commands, Json
from newsstand.cli.terminal import print_table, say
from newsstand.errors import BadInput, BadOption

if TYPE_CHECKING:
    from newsstand.http.client import BlockingHttpClient

UNKNOWN = "application/octet-stream"
"""The media type of a page whose type is not known."""

app = Commands(help="Put, list and drop pages that keep their name.")

Name = Annotated[str, Argument(metavar="NAME", help="The page's name, such as sport/today.html.")]


@dataclass(frozen=True)
class PageCluster(ClusterOptions):
    """A data cluster, by its app or by its address."""

    app: Annotated[Path | None, "APP", "The app folder, if it is not this folder; not needed with --url."] = None

    def client(self) -> BlockingHttpClient:
        """Return a client of the cluster."""
        from newsstand.cluster.app_folder import FILE

        if self.app is not None or (Path.cwd() / FILE).is_file():
            return self.connect(located_app(self.app or Path()))
        if self.url is None:
            raise BadOption(f"--app: no {FILE} here; name the app folder, or the cluster with --url")
        return self.connect(None)


@app.command("put")
def put(
    cluster: PageCluster,
    name: Name,
    file: Annotated[str, Argument(metavar="FILE", help="Its content; - for standard input.")],
    kind: Annotated[
        str | None, Option("--type", metavar="TYPE", help="Its media type, if not as the file's name says.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Put a page under a name, in place of what is there. The same once more changes nothing.

    Example: newsstand page put sport/today.html today.html --app my-app
    """
    _require_name(name)
    headers = {"Content-Type": _type_of(name, file, kind)}
    with _opened(file) as content, cluster.client() as client:
        response = request(client, "PUT", f"/named/{name}", content=content, headers=headers)
    if response.status == 413:
        raise BadInput(f"{'standard input' if file == '-' else file}: {response.error_text}")
    page = body_of(response)
    if as_json:
        print(json.dumps(page))
        return
    became = "new" if response.status == 201 else "changed" if page["changed"] else "as it was"
    print(f"{name}: {became}, {page['size']:,} bytes, {page['type']}")


@app.command("drop")
def drop(cluster: PageCluster, name: Name, as_json: Json = False) -> None:
    """Drop the page of a name. Copies of it go when brokers next check them.

    Example: newsstand page drop sport/today.html --app my-app
    """
    _require_name(name)
    with cluster.client() as client:
        dropped = request_json(client, "DELETE", f"/named/{name}")
    print(json.dumps(dropped) if as_json else f"{name}: dropped")


@app.command("list")
def list_(cluster: PageCluster, as_json: Json = False) -> None:
    """List the pages that have names, and when each was last changed (UTC).

    Example: newsstand page list --app my-app
    """
    with cluster.client() as client:
        pages = request_list(client, "/named", "pages")
    if as_json:
        print(json.dumps(pages))
    elif pages:
        rows = [(one["name"], one["type"], _time(one["modified_ms"]), f"{one['size']:,}") for one in pages]
        print_table(("name", "type", "modified", "bytes"), rows, left=("name", "type", "modified"))
    else:
        say("there are no named pages yet; `newsstand page put NAME FILE` adds one")


def _require_name(name: str) -> None:
    """Raise BadOption unless a text is a page name, so that it can be part of an address."""
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
        yield sys.stdin.buffer.read()  # its size must be known before the first byte is sent
        return
    try:
        opened = open(file, "rb")  # noqa: SIM115  errors while it is open are not errors of the file
    except FileNotFoundError:
        raise BadInput(f"{file}: no such file") from None
    except IsADirectoryError:
        raise BadInput(f"{file}: is a folder, not a file") from None
    except OSError as error:
        raise BadInput(f"{file}: cannot be read ({error.strerror})") from error
    with opened:
        yield opened


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
