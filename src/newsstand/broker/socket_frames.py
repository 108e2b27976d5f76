"""What goes over a subscriber's WebSocket, ready for the wire, and the codes with which one is closed."""

from __future__ import annotations

import msgspec
from websockets.frames import Frame, Opcode

MALFORMED = 4000
NO_TOKEN = 4001
TOO_SLOW = 4002
MOVED = 4003
STRANGER = 4004
TOO_MANY = 4005
DISABLED = 4006
GOING_DOWN = 1012
BROKEN = 1011

PING = Frame(Opcode.PING, b"").serialize(mask=False)


class Dismissed(Exception):
    """A client that is not to stay: its connection is closed with a code and a reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def text_frame(payload: bytes) -> bytes:
    """A text message of the server."""
    return Frame(Opcode.TEXT, payload).serialize(mask=False)


def signal_frame(stream: str, position: int) -> bytes:
    """A stream has reached a position."""
    return text_frame(msgspec.json.encode({"stream": stream, "position": position}))


def suspension_frame(stream: str, position: int, suspended: object) -> bytes:
    """A stream was suspended, or resumed if `suspended` is null; it stands at a position."""
    return text_frame(msgspec.json.encode({"stream": stream, "position": position, "suspended": suspended}))


READY = text_frame(b'{"ready":true}')
