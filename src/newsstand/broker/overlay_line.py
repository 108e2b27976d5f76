"""One WebSocket between two brokers, after both have said who they are: batches of messages in both directions.

It is the same on both sides. What is to be sent is collected while the event loop does other things, and goes out
as one binary frame. A neighbour that does not read makes the line end when too much waits for it; the link then
begins anew and the tables are told again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

from newsstand.broker.socket_frames import GOING_DOWN, MALFORMED, PING, TOO_SLOW
from newsstand.errors import BadMessage
from newsstand.overlay.messages import Message, batch_of, decode_batch, encode

LARGEST_FRAME = 16 * 1024 * 1024
"""Bytes of a batch."""
MOST_MESSAGES = 512
"""How many messages one batch has."""
ENOUGH_BYTES = 1024 * 1024
"""A batch that would have more goes out first."""
MOST_WAITING = 64 * 1024 * 1024
"""Bytes that may wait for a neighbour that does not read."""
LINGER_S = 2.0
PING_S, LOST_S = 5.0, 15.0
"""A neighbour is asked whether it is there after so long a silence, and is lost after the other."""


def accepted_frames() -> Protocol:
    """The frames of a connection that a neighbour has opened, from here on."""
    return Protocol(Side.SERVER, state=State.OPEN, max_size=LARGEST_FRAME)


class Line(asyncio.Protocol):
    """Between this broker and a neighbour; `received` gets batches, `lost` is called once, at the end."""

    def __init__(
        self,
        frames: Protocol,
        received: Callable[[list[Message]], None],
        lost: Callable[[Line, str], None],
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._frames = frames
        self._received = received
        self._lost = lost
        self._most_waiting = most_waiting
        self._transport: asyncio.Transport | None = None
        self._batch: list[bytes] = []
        self._bytes = 0
        self._heard = True
        self._silent_since = 0.0
        self._over = False
        self.left: Callable[[], None] = lambda: None
        """Called when the connection is gone, whoever has ended it."""

    def begin(self, transport: asyncio.BaseTransport) -> None:
        """Take over a connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_protocol(self)

    def read(self, early: Sequence[Frame]) -> None:
        """Take what has come before this line took over."""
        for frame in early:
            self._take(frame)

    def send(self, message: Message) -> None:
        """Send a message, soon, and after those before it."""
        if self._over:
            return
        encoded = encode(message)
        if self._bytes + len(encoded) > ENOUGH_BYTES:
            self._flush()
        if not self._batch:
            asyncio.get_running_loop().call_soon(self._flush)
        self._batch.append(encoded)
        self._bytes += len(encoded)
        if len(self._batch) >= MOST_MESSAGES:
            self._flush()

    @property
    def waiting(self) -> int:
        """Bytes that the neighbour has not taken yet."""
        return self._bytes + (0 if self._transport is None else self._transport.get_write_buffer_size())

    def close(self, code: int, reason: str) -> None:
        """End the line, and say why."""
        if self._over:
            return
        if self._frames.state is State.OPEN:
            self._frames.send_close(code, reason.encode()[:123].decode(errors="ignore"))
        self._end(reason)

    def shutdown(self) -> None:
        """The server stops."""
        self.close(GOING_DOWN, "the broker is going down")

    def tick(self, now: float) -> None:
        """To be called about once a second."""
        if self._heard:
            self._heard, self._silent_since = False, now
        elif now - self._silent_since >= LOST_S:
            self.close(TOO_SLOW, "nothing was heard for too long")
        elif now - self._silent_since >= PING_S and self._transport is not None:
            self._transport.write(PING if self._frames.side is Side.SERVER else _MASKED_PING)

    # What the transport calls.

    def data_received(self, data: bytes) -> None:
        self._heard = True
        self._frames.receive_data(data)
        for event in self._frames.events_received():
            if isinstance(event, Frame) and not self._over:
                self._take(event)
        if self._over:
            return
        if self._frames.close_expected():
            self._end(_why(self._frames))
        else:
            self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("the connection was lost")
        self.left()

    # From frames to messages, and back.

    def _take(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.PING, Opcode.PONG, Opcode.CLOSE):
            return
        if frame.opcode is not Opcode.BINARY or not frame.fin:
            self.close(MALFORMED, "a batch of messages is one binary frame")
            return
        try:
            messages = decode_batch(bytes(frame.data))
        except BadMessage as error:
            self.close(MALFORMED, str(error))
            return
        self._received(messages)

    def _flush(self) -> None:
        if self._over or not self._batch or self._transport is None:
            return
        batch, self._batch, self._bytes = self._batch, [], 0
        self._frames.send_binary(batch_of(batch))
        self._write()
        if self._transport.get_write_buffer_size() > self._most_waiting:
            self.close(TOO_SLOW, "stopped reading")

    def _write(self) -> None:
        out = b"".join(self._frames.data_to_send())
        if out and self._transport is not None:
            self._transport.write(out)

    def _end(self, why: str) -> None:
        if self._over:
            return
        self._over = True
        self._batch.clear()
        transport = self._transport
        if transport is not None and not transport.is_closing():
            self._write()
            if transport.can_write_eof():
                transport.write_eof()  # to close at once, while it still sends, would hide the code from it
                asyncio.get_running_loop().call_later(LINGER_S, transport.abort)
            else:
                transport.close()
        self._lost(self, why)


_MASKED_PING = Frame(Opcode.PING, b"").serialize(mask=True)


def _why(frames: Protocol) -> str:
    if frames.close_rcvd is not None:
        return f"closed by the neighbour: {frames.close_rcvd.code} {frames.close_rcvd.reason}"
    return str(frames.parser_exc or "the connection ended")
