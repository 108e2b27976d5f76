"""Connections of commands to a running server: its app, its address, its token, and its errors."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

from newsstand.errors import BadInput, BadOption, NewsstandError

if TYPE_CHECKING:
    from newsstand.cluster.app_folder import App
    from newsstand.http.client import BlockingHttpClient, HttpResponse

AppFolder = Annotated[Path, Argument(metavar="APP", help="The app folder, with newsstand.toml.")]


class NoAnswer(NewsstandError):
    """A server does not answer."""


@dataclass(frozen=True)
class ClusterOptions:
    """The address of a data cluster, if it is not its app's, and the token for it."""

    url: Annotated[str | None, "URL", "The cluster's address, instead of the app's."] = None
    token_file: Annotated[Path | None, "FILE", "A file with the token (or set NEWSSTAND_TOKEN)."] = None

    def address_of(self, app: App) -> tuple[str, str]:
        """Return the current address of an app's cluster, or else the configured one, and where it is written."""
        from newsstand.cluster.app_folder import ADDRESS, FILE

        if self.url:
            return self.url, "--url"
        file = app.data / ADDRESS  # written by a cluster that runs on this machine, or is about to
        if file.is_file():
            return file.read_text().strip(), str(file)
        scheme = "http" if app.cluster.certificate is None else "https"
        return f"{scheme}://{app.cluster.host}:{app.cluster.port}", f"[cluster] of {app.folder / FILE}"

    def connect(self, app: App | None) -> BlockingHttpClient:
        """Return a client of an app's cluster; without an app, of the cluster at `--url`."""
        from newsstand.auth.api_tokens import find_token
        from newsstand.config.types import is_http_url

        address = self.url or "" if app is None else self.address_of(app)[0]
        if not is_http_url(address):
            raise BadOption(f"--url {address}: must be a URL such as http://127.0.0.1:8780")
        environment = os.environ.get("NEWSSTAND_TOKEN")
        token = find_token(None if app is None else app.data, self.token_file, environment)
        if not token.isascii() or not token.isprintable():
            raise BadOption("token: must be printable ASCII; copy it again to --token-file or NEWSSTAND_TOKEN")
        return open_http(address, token, 60)


def located_app(folder: Path) -> App:
    """Return an app, with the data folder of its platform if that runs on this machine."""
    from newsstand.cluster.app_folder import read_app
    from newsstand.platform.data_folder import folder_in_use

    app = read_app(folder)
    data = folder_in_use(app.data)
    return app if data == app.data else app.with_data(data)


def open_http(address: str, token: str, timeout_s: float) -> BlockingHttpClient:
    """Return a client that sends a token and trusts the certificates of SSL_CERT_FILE, else the usual ones."""
    from newsstand.http.client import BlockingHttpClient, trust

    tls = trust(os.environ.get("SSL_CERT_FILE"), "SSL_CERT_FILE ")
    headers = {"Authorization": f"Bearer {token}"}
    return BlockingHttpClient(address, headers=headers, tls=tls, timeout_s=timeout_s)


def request(client: BlockingHttpClient, method: str, path: str, **more: Any) -> HttpResponse:
    """Send a request and return the response; raise NoAnswer."""
    from newsstand.http.client import RequestError

    try:
        return client.request(method, path, **more)
    except RequestError as error:
        raise NoAnswer(
            f"{client.base_url}: does not answer ({error.reason}); start the server or name another address"
        ) from error


def body_of(response: HttpResponse) -> dict[str, Any]:
    """Return the JSON object of a response, empty without a body; raise the error of an unsuccessful one."""
    if response.status >= 500 or response.status == 429:
        raise NewsstandError(f"{response.url}: {response.error_text}; try again later")
    if not response.is_success:
        raise BadInput(response.error_text)
    return response.decode(dict[str, Any]) if response.content else {}


def request_json(client: BlockingHttpClient, method: str, path: str, **more: Any) -> dict[str, Any]:
    """Send a request and return the JSON object of the response; raise its error."""
    return body_of(request(client, method, path, **more))


def request_list(client: BlockingHttpClient, path: str, name: str) -> list[Any]:
    """Return the entries of all pages of a list, which the pages have under a name."""
    entries: list[Any] = []
    position: dict[str, object] = {}
    while True:
        page = request_json(client, "GET", path, params=position)
        entries += page[name]
        if page["next"] is None:
            return entries
        position = {"after": page["next"]}
