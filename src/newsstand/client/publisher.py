"""Publishing to a data cluster, and pages under names."""

from __future__ import annotations

import builtins
import random
import re
import ssl
import uuid
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from newsstand.client.calls import Answer, Calls, accepted, decoded
from newsstand.client.errors import Misused
from newsstand.client.nouns import NamedPage, Receipt
from newsstand.client.pace import Pace
from newsstand.model import is_page_name


class Publisher:
    """Adds records to the datasets of a data cluster, and gives its page store pages under names.

    A call that was not answered may or may not have added its records, so each has a key, and is repeated with the
    same key: records are added once.
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
        self._pace = pace or Pace()
        self._calls = Calls(http, tls, self._pace, rng or random.Random())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._calls.close()

    async def publish(
        self,
        dataset: str,
        records: Mapping[str, object] | Iterable[Mapping[str, object]],
        *,
        key: str | None = None,
    ) -> Receipt:
        """Add a record, or many in one request; durable when it returns. Records are judged one by one.

        `key` is yours if you may have to repeat the call in another process; otherwise one is made up.
        """
        many = [records] if isinstance(records, Mapping) else list(records)
        if not many:
            raise Misused("there are no records to publish")
        encoder = msgspec.json.Encoder()
        body = b"\n".join(encoder.encode(dict(record)) for record in many) + b"\n"
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key or uuid.uuid4().hex}
        url = f"{self._cluster}/datasets/{dataset}/publications"

        async def attempt() -> Answer:
            return await self._calls.once("POST", url, token=self._token, content=body, headers=headers)

        answer = await self._calls.patiently(attempt, self._pace.deadline_s)
        if answer.status == 422 and b'"refused"' in answer.content:
            return decoded(answer, Receipt)  # all of them were
        return decoded(accepted(answer), Receipt)

    async def put_page(self, name: str, content: bytes, type: str = "application/octet-stream") -> NamedPage:
        """Let the origin have this content under a name; durable when it returns. The same again is no change."""
        if not isinstance(content, bytes | bytearray):
            raise Misused(f"the content of a page is bytes, not {builtins.type(content).__name__}")
        if not isinstance(type, str) or re.fullmatch(r"[!-~][ -~]{0,126}", type) is None:
            raise Misused(f"{type!r} is not a media type such as text/html")
        content = bytes(content)
        answer = await self._named("PUT", name, content=content, headers={"Content-Type": type})
        return decoded(accepted(answer), NamedPage)

    async def drop_page(self, name: str) -> None:
        """Let the origin have nothing under a name any more; `NotThere` if there is nothing."""
        accepted(await self._named("DELETE", name))

    async def _named(self, method: str, name: str, **more: Any) -> Answer:
        if not isinstance(name, str) or not is_page_name(name):
            raise Misused(f"{name!r} cannot be the name of a page: letters, digits and ._~- in segments")

        async def attempt() -> Answer:
            return await self._calls.once(method, f"{self._cluster}/named/{name}", token=self._token, **more)

        return await self._calls.patiently(attempt, self._pace.deadline_s)
