"""Publishing to a data cluster, and named pages."""

from __future__ import annotations

import builtins
import random
import re
import ssl
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Self
from urllib.parse import quote

import aiohttp
import msgspec

from newsstand.client.http import ApiResponse, HttpCalls, Pace, accepted, decoded
from newsstand.client.models import NamedPage, UsageError
from newsstand.model import is_page_name
from newsstand.wire.cluster import Receipt


class Publisher:
    """A client of a data cluster that adds records to datasets and stores named pages.

    A call without a response may or may not have added its records. Each call has an idempotency key and is
    retried with it, so that records are added once.
    """

    def __init__(
        self,
        cluster: str,
        token: str,
        *,
        http: aiohttp.ClientSession | None = None,
        tls: ssl.SSLContext | None = None,
        pace: Pace | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._cluster = cluster.rstrip("/")
        self._token = token
        self._calls = HttpCalls(http, tls, pace or Pace(), rng or random.Random())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._calls.close()

    async def publish(
        self,
        dataset: str,
        records: Mapping[str, object] | Iterable[Mapping[str, object]],
        *,
        key: str | None = None,
    ) -> Receipt:
        """Add a record, or many in one request; durable when it returns. Each record is accepted or rejected.

        Give a `key` if another process may have to repeat the call; otherwise a random one is used.
        """
        many = [records] if isinstance(records, Mapping) else list(records)
        if not many:
            raise UsageError("publish: give at least one record")
        body = msgspec.json.Encoder().encode_lines(map(dict, many))
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key or uuid.uuid4().hex}
        path = f"/datasets/{quote(dataset, safe='')}/publications"
        response = await self._request("POST", path, content=body, headers=headers)
        if response.status == 422 and b'"rejected"' in response.content:
            return decoded(response, Receipt)  # all were rejected
        return decoded(accepted(response), Receipt)

    async def put_page(self, name: str, content: bytes, type: str = "application/octet-stream") -> NamedPage:
        """Store a page under a name; durable when it returns. Storing the same content again changes nothing."""
        if not isinstance(content, bytes | bytearray):
            raise UsageError(f"content: expected bytes, got {builtins.type(content).__name__}")
        if not isinstance(type, str) or re.fullmatch(r"[!-~][ -~]{0,126}", type) is None:
            raise UsageError(f"{type!r}: not a media type such as text/html")
        content = bytes(content)
        response = await self._request_page("PUT", name, content=content, headers={"Content-Type": type})
        return decoded(accepted(response), NamedPage)

    async def drop_page(self, name: str) -> None:
        """Delete the page of a name; raise `ResourceNotFound` if there is none."""
        accepted(await self._request_page("DELETE", name))

    async def _request_page(self, method: str, name: str, **more: Any) -> ApiResponse:
        if not isinstance(name, str) or not is_page_name(name):
            raise UsageError(f"{name!r}: not a page name: use letters, digits, ._~- and slashes")
        return await self._request(method, f"/named/{name}", **more)

    async def _request(self, method: str, path: str, **more: Any) -> ApiResponse:
        calls = self._calls
        return await calls.with_retries(
            lambda: calls.once(method, self._cluster + path, token=self._token, **more), calls.pace.deadline_s
        )
