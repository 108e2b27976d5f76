"""HTTP clients of servers and commands: one kind of session (aiohttp), one response, one kind of error.

    async with HttpClient("http://127.0.0.1:8780", headers={"Authorization": f"Bearer {token}"}) as http:
        response = await http.request("PUT", "/brokers/b1", json={"callback": callback}, timeout_s=10)
        if response.is_success:
            registered = response.decode(Registered)
        else:
            raise SomeError(response.error_text)

`request` reads a bounded body; `stream` yields an `aiohttp.ClientResponse` whose body the caller reads, with
`read_bounded` or piece by piece from `response.content.iter_any()`. Both raise only RequestError for failures of
the network; a status is never an error. Redirects, proxies of the environment, cookies and compression are off. A
path is appended to the base URL; a URL that starts with a scheme is used as it is. A client may be made before its
event loop runs. Commands use `BlockingHttpClient`.

This module imports neither Starlette nor uvicorn.
"""

from __future__ import annotations

import io
import os
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self, TypedDict, TypeVar, Unpack
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from newsstand.concurrency.background_loop import BackgroundLoop
from newsstand.config.types import is_http_url
from newsstand.errors import BadOption, NewsstandError

T = TypeVar("T")
KEEP_ALIVE_S = 3.0
"""uvicorn closes connections that were idle for 5 s; they are closed here earlier, to avoid a failed request."""
MOST_BYTES = 64 << 20
"""Bytes of a response body, unless a caller says otherwise."""
_BUFFERED = 1 << 16
"""Larger request bodies are sent as files: aiohttp writes bytes at once."""


class RequestError(NewsstandError):
    """A request without a usable response; `reason` says why, without the address."""

    http_status = 503

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url}: {reason}")
        self.url = url
        self.reason = reason


class ConnectError(RequestError):
    """No connection: the request was not sent."""


class ResponseTooLarge(RequestError):
    """A response body with more bytes than the caller accepts."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response whose body was read; `url` has no query."""

    url: str
    status: int
    headers: Mapping[str, str]
    """Their names are case-insensitive."""
    content: bytes

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def error_text(self) -> str:
        """The `error` of the body as one line, or the status."""
        try:
            error = msgspec.json.decode(self.content)["error"]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
            error = ""
        return " ".join(str(error).split()) or f"status {self.status}"

    def decode(self, type: type[T]) -> T:
        """Return the body, decoded from JSON; raise RequestError if it has another shape."""
        try:
            return msgspec.json.decode(self.content, type=type)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RequestError(self.url, f"unexpected response ({error})") from error


class RequestOptions(TypedDict, total=False):
    """Parts of a request."""

    content: bytes | BinaryIO | None
    params: Mapping[str, object] | None
    headers: Mapping[str, str] | None
    timeout_s: float | None


class HttpClient:
    """A pool of connections, made when it is first used, for the event loop that runs then."""

    def __init__(
        self,
        base_url: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 30.0,
        connect_s: float = 5.0,
        connections: int = 100,
    ) -> None:
        """`timeout_s` is for a request with its response; 0 `connections`: no limit; `tls`: see `trust`.

        Raise BadOption if `base_url` is not a URL.
        """
        if base_url and not is_http_url(base_url):
            raise BadOption(f"{base_url}: not a URL such as http://127.0.0.1:8780")
        self.base_url = base_url.rstrip("/")
        self._headers = {"Accept-Encoding": "identity", **(headers or {})}
        self._tls = tls
        self._timeout_s = timeout_s
        self._connect_s = connect_s
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        url: str,
        *,
        json: object = None,
        most_bytes: int = MOST_BYTES,
        **options: Unpack[RequestOptions],
    ) -> HttpResponse:
        """Send a request, with `json` or `content` as its body, and read its response; raise RequestError."""
        if json is not None:
            options["content"] = msgspec.json.encode(json)
            options["headers"] = {"Content-Type": "application/json", **(options.get("headers") or {})}
        async with self.stream(method, url, **options) as response:
            body = await read_bounded(response, most_bytes)
            return HttpResponse(_without_query(response.url), response.status, response.headers, body)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        content: bytes | BinaryIO | None = None,
        params: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        server_hostname: str | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and yield its response, to be read within the block; raise RequestError.

        `server_hostname` is the name that a certificate must have, if the URL has an address instead.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        address = parse_url(
            f"{url if '://' in url else self.base_url + url}{f'?{urlencode(params)}' if params else ''}"
        )
        if self._session is None:
            self._session = self._open_session()
        with _as_request_errors(address, limit_s):
            async with self._session.request(
                method,
                address,
                data=io.BytesIO(content) if isinstance(content, bytes) and len(content) > _BUFFERED else content,
                headers=headers,
                allow_redirects=False,
                server_hostname=server_hostname,
                timeout=aiohttp.ClientTimeout(total=limit_s, sock_connect=min(limit_s, self._connect_s)),
            ) as response:
                yield response

    def _open_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=self._tls or True, limit=self._connections, keepalive_timeout=KEEP_ALIVE_S
            ),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )


class BlockingHttpClient:
    """An HttpClient for callers without an event loop: its requests run in a thread of its own."""

    def __init__(
        self,
        base_url: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self._client = HttpClient(base_url, headers=headers, tls=tls, timeout_s=timeout_s)
        self._loop = BackgroundLoop("http-client")

    @property
    def base_url(self) -> str:
        """The URL to which paths are appended."""
        return self._client.base_url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and end the thread."""
        try:
            self._loop.run(self._client.close())
        finally:
            self._loop.stop()

    def request(
        self, method: str, url: str, *, json: object = None, **options: Unpack[RequestOptions]
    ) -> HttpResponse:
        """Send a request and read its response; raise RequestError."""
        return self._loop.run(self._client.request(method, url, json=json, **options))


async def read_bounded(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    """Return the body of a response; raise ResponseTooLarge as soon as it is known to be larger."""
    body = bytearray()
    if (response.content_length or 0) <= most_bytes:
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > most_bytes:
                break
        else:
            return bytes(body)
    raise ResponseTooLarge(_without_query(response.url), f"more than {most_bytes} bytes in the response")


def trust(certificates: Path | str | None, name: str = "") -> ssl.SSLContext | None:
    """Return how to trust the certificates of a file only; None for those of the system. Raise BadOption.

    `name` precedes the file in the error: where it was given.
    """
    if not certificates:
        return None
    try:
        return ssl.create_default_context(cafile=str(certificates))
    except OSError as error:  # ssl.SSLError is one, too
        raise BadOption(f"{name}{certificates}: cannot read certificates ({error.strerror})") from error


def parse_url(text: str) -> URL:
    """Return an http(s) URL with its percent escapes as they are; raise RequestError if it is none."""
    try:
        url = URL(text)
        if url.scheme in ("http", "https") and url.host:
            is_encoded = text.isascii() and text.isprintable() and " " not in text
            return URL(text, encoded=True) if is_encoded else url
    except ValueError:
        pass
    raise RequestError(text.partition("?")[0][:200], "not an http:// or https:// URL")


def raw_path(url: str) -> str:
    """Return path and query of a URL as a request has them."""
    return parse_url(url).raw_path_qs


@contextmanager
def _as_request_errors(url: URL, limit_s: float) -> Iterator[None]:
    try:
        yield
    except aiohttp.ClientConnectorError as error:
        raise ConnectError(_without_query(url), f"cannot connect ({_reason_of(error)})") from error
    except aiohttp.ConnectionTimeoutError as error:
        raise ConnectError(_without_query(url), "cannot connect in time") from error
    except aiohttp.ClientError as error:
        raise RequestError(_without_query(url), f"no response ({_reason_of(error)})") from error
    except TimeoutError as error:
        raise RequestError(_without_query(url), f"no response within {limit_s:g} s") from error


def _reason_of(error: aiohttp.ClientError) -> str:
    cause = getattr(error, "os_error", error)
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0 and not isinstance(cause, ssl.SSLError):  # whose numbers are its own
        return os.strerror(number)
    return getattr(error, "strerror", None) or " ".join(str(error).split())[:200] or type(error).__name__


def _without_query(url: URL) -> str:
    return str(url.with_query(None).with_fragment(None))
