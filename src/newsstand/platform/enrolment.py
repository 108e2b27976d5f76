"""Many subscribers at once, written into a broker's store before it starts: no password is hashed for them.

For experiments with brokers that stand alone: whoever has their secret can make sessions for anybody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import jwt

from newsstand.broker.records import Adopt, Held, Record, Session, frontend_id
from newsstand.broker.store_sqlite import SqliteStore
from newsstand.model import Scalar
from newsstand.serving.credentials import SharedKeys
from newsstand.serving.process import make_private_folder

Subscribed = tuple[str, list[Scalar]]
"""A channel, and values in the order of its parameters."""

SESSION_S = 24 * 3600


def enrol(data: Path, people: Mapping[str, Sequence[Subscribed]], now_s: int) -> None:
    """Subscribers at home at the broker of a data folder, each with a session and subscriptions."""
    make_private_folder(data)
    store = SqliteStore(data / "broker.sqlite", tell=False)
    try:
        store.write([Adopt(_record(name, subscribed, now_s)) for name, subscribed in people.items()])
    finally:
        store.close()


def access_token(name: str, secret: str, now_s: int) -> str:
    """A token for the session of somebody who was enrolled."""
    claims = {"sub": name, "sid": _session(name), "iat": now_s, "exp": now_s + SESSION_S, "iss": "newsstand"}
    return jwt.encode(claims, SharedKeys.of(secret).subscribers, "HS256")


def _record(name: str, subscribed: Sequence[Subscribed], now_s: int) -> Record:
    session = Session(1, (now_s + SESSION_S) * 1000)
    held = {frontend_id(name, channel, values): Held(channel, values, 0) for channel, values in subscribed}
    return Record(name, "$argon2id$none", {_session(name): session}, held)


def _session(name: str) -> str:
    return f"s-{name}"
