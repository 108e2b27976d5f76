"""A subscriber's session: it is begun with a password, renewed before its token expires, and begun again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from newsstand.client.calls import Answer, Calls, Lost, accepted, decoded, reason_of
from newsstand.client.errors import SessionEnded, WrongPassword
from newsstand.client.home import Home
from newsstand.client.nouns import Tokens


class Session:
    """Knows a token that is good, or gets one. `kept` is called with each new pair."""

    def __init__(
        self,
        calls: Calls,
        home: Home,
        name: str | None,
        password: str | None,
        tokens: Tokens | None,
        *,
        register: bool,
        allow: Sequence[Mapping[str, object]] | None,
        kept: Callable[[Tokens], None] | None,
        rng: random.Random,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._calls = calls
        self._home = home
        self._name = name
        self._password = password
        self._register = register
        self._allow = allow
        self._kept = kept
        self._rng = rng
        self._now = now
        self._renewing: asyncio.Task[None] | None = None
        self._renew_at = 0.0
        self.tokens: Tokens | None = None
        if tokens is not None:
            self._take(tokens)

    @property
    def seconds_left(self) -> float:
        """How long the token is good, less what it takes to renew it in time."""
        return self._renew_at - self._now()

    async def broker_and_token(self) -> tuple[str, str]:
        """Where to go, and with which token; one attempt."""
        url = await self._home.url(None if self.tokens is None else self.tokens.access)
        if self.tokens is None or self.seconds_left <= 0:
            await self._renewed(url)
        assert self.tokens is not None
        return url, self.tokens.access

    def refused(self, token: str) -> None:
        """A broker does not accept a token: another is needed."""
        if self.tokens is not None and self.tokens.access == token:
            self._renew_at = 0.0

    def password_changed(self, password: str) -> None:
        """The next login is with another password, if there is any login with one."""
        if self._password is not None:
            self._password = password

    async def close(self, within_s: float) -> None:
        """Let a renewal come to its end, for so long: the token that it used is used up. A login is given up."""
        task = self._renewing
        if task is None or task.done():
            return
        if self.tokens is not None:
            await asyncio.wait([task], timeout=within_s)
        task.cancel()
        await asyncio.wait([task])

    async def _renewed(self, url: str) -> None:
        """One renewal for all who wait. It goes on if they are cancelled: its answer must not be lost."""
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew(url))
            self._renewing.add_done_callback(_heard)
        await asyncio.shield(self._renewing)

    async def _renew(self, url: str) -> None:
        if self.tokens is not None:
            answer = await self._once(url, "/refresh", {"refresh": self.tokens.refresh})
            if answer.status != 401:
                return self._got(answer)
            if self._password is None:
                raise SessionEnded(f"{reason_of(answer)}; give the client a password, and it does so by itself")
        await self._login(url)
        return None

    async def _login(self, url: str) -> None:
        who = {"name": self._name, "password": self._password}
        if self._register:
            answer = await self._once(url, "/subscribers", who)
            if answer.status != 409:  # taken: by us, if the password is good
                accepted(answer)
            self._register = False
        limits = {} if self._allow is None else {"allow": self._allow}
        answer = await self._once(url, "/login", {**who, **limits})
        if answer.status == 401:
            raise WrongPassword(reason_of(answer))
        self._got(answer)

    async def _once(self, url: str, path: str, body: object) -> Answer:
        try:
            return await self._calls.once("POST", url + path, body=body)
        except Lost as error:
            self._home.lost(url, gone=error.gone)
            raise

    def _got(self, answer: Answer) -> None:
        tokens = decoded(accepted(answer), Tokens)
        self._take(msgspec.structs.replace(tokens, expires_at=self._now() + tokens.expires_in))
        if self._kept is not None and self.tokens is not None:
            self._kept(self.tokens)

    def _take(self, tokens: Tokens) -> None:
        # A fifth to a tenth of its time before it expires: those who began together do not renew together.
        early = tokens.expires_in * self._rng.uniform(0.1, 0.2)
        self.tokens = tokens
        self._renew_at = tokens.expires_at - early


def _heard(task: asyncio.Task[None]) -> None:
    """An error that nobody waits for any more is no news: the next who needs a token tries again."""
    if not task.cancelled():
        task.exception()
