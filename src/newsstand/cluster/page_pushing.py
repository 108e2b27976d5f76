"""Pushes: at the end of each period the origin decides, and what it decides is posted to the push-cache.

One push at a time, in a thread of its own; whoever asks for a page never waits for it. A push-cache that does not
answer as it should counts as gone until it announces itself again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import httpx
import msgspec

from newsstand.cluster.notify import signed, trusting
from newsstand.cluster.own_loop import OwnLoop
from newsstand.cluster.page_origin import PageOrigin, PagePush
from newsstand.model import Broker
from newsstand.signing import HEADER

TIMEOUT_S = 60.0
"""How long a push may take as a whole: the push-cache fetches what it keeps meanwhile."""
MOST_ANSWER_BYTES = 16 << 20

_log = logging.getLogger(__name__)


class PushAnswer(msgspec.Struct):
    """What a push-cache made of a push: pages that it has now, and pages that it has no more."""

    kept: list[str]
    left: list[str]


class PushFailed(Exception):
    """A push-cache did not answer as it should; the message says how."""


class PagePushing:
    """Asks `origin` at the end of each period and posts what it says; `dated` gives a page's size and time."""

    def __init__(
        self,
        origin: PageOrigin,
        broker: Callable[[str], Broker | None],
        dated: Callable[[str], tuple[int, int] | None],
        clock: Callable[[], float],
        now_ms: Callable[[], int],
        *,
        told: Callable[[int], None] = lambda kept: None,
        timeout_s: float = TIMEOUT_S,
        authority: Path | None = None,
    ) -> None:
        """`clock` is in seconds and only rises; `authority` is a file of certificates to trust in brokers."""
        self._origin = origin
        self._broker = broker
        self._dated = dated
        self._clock = clock
        self._now_ms = now_ms
        self._told = told
        self._timeout_s = timeout_s
        self._verify = trusting(authority)
        self._last_id = 0
        self._own = OwnLoop("pushing", self._run)

    def start(self) -> None:
        """Run in a thread of its own until `stop`."""
        self._own.start()

    def stop(self) -> None:
        """End the thread; a push under way is given up."""
        self._own.stop()

    async def _run(self) -> None:
        while True:
            try:
                if not await self.push_if_due():
                    await asyncio.sleep(max(0.0, self._origin.decides_at - self._clock()))
            except Exception as error:
                _log.error("cannot decide what to push: %s: %s", type(error).__name__, error)
                await asyncio.sleep(1.0)

    async def push_if_due(self) -> bool:
        """Decide, and push if there is something to be pushed; whether there was."""
        push = self._origin.decide(self._clock())
        if push is None:
            return False
        name = push.cache.name
        try:
            kept = await self._push(push)
        except PushFailed as error:
            _log.warning("push-cache '%s' counts as gone: %s", name, " ".join(str(error).split()))
            self._origin.gone(name)
        else:
            _log.info("push-cache '%s' has taken %d of %d pages", name, kept, len(push.pages))
        return True

    async def _push(self, push: PagePush) -> int:
        """Post the pages that are still there; how many the push-cache keeps."""
        broker = self._broker(push.cache.name)
        if broker is None:
            raise PushFailed("it was dismissed")
        offers = {
            one.page: {"path": one.page, "size": dated[0], "modified_ms": dated[1], "requests": one.expected}
            for one in push.pages
            if (dated := self._dated(one.page)) is not None
        }
        if not offers:
            return 0
        body = msgspec.json.encode({"pages": list(offers.values())})
        answer = await self._post(push.cache.push, body, broker)
        kept = [path for path in answer.kept if path in offers]
        self._origin.taken(push.cache.name, kept, answer.left)
        self._told(len(kept))
        return len(kept)

    async def _post(self, url: str, body: bytes, broker: Broker) -> PushAnswer:
        now_ms = self._now_ms()
        self._last_id = max(now_ms, self._last_id + 1)
        answered = bytearray()
        try:
            signature = signed(broker, url, body, now_ms // 1000, self._last_id)
            headers = {"Content-Type": "application/json", HEADER: signature}
            # A limit for the whole: httpx only limits each step, and an answer may come byte by byte.
            async with (
                asyncio.timeout(self._timeout_s),
                httpx.AsyncClient(timeout=self._timeout_s, trust_env=False, verify=self._verify) as client,
                client.stream("POST", url, content=body, headers=headers) as answer,
            ):
                if answer.status_code != 200:
                    raise PushFailed(f"it answered {answer.status_code}")
                async for piece in answer.aiter_bytes():
                    answered += piece
                    if len(answered) > MOST_ANSWER_BYTES:
                        raise PushFailed(f"it answered more than {MOST_ANSWER_BYTES} bytes")
            return msgspec.json.decode(answered, type=PushAnswer)
        except TimeoutError:
            raise PushFailed(f"no answer within {self._timeout_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise PushFailed(f"{type(error).__name__}: {error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise PushFailed(f"it answered something else than what it keeps: {error}") from error
