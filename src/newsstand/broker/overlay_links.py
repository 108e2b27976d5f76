"""The links of a broker to its neighbours in the tree, as the coordinator wants them.

Of two neighbours the one whose name is smaller dials. While the coordinator lists a neighbour, a link that ends is
dialled again; nobody else is let in.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from functools import partial

from websockets.protocol import Protocol

from newsstand.broker.overlay_dialling import Hello, NoLink, dial
from newsstand.broker.overlay_line import Line, accepted_frames
from newsstand.broker.overlay_told import Neighbour
from newsstand.broker.socket_frames import STRANGER
from newsstand.overlay.messages import Message

logger = logging.getLogger(__name__)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 3.0


class Links:
    """Used from the event loop's thread; `up` and `down` are told of links, `received` of what comes over them."""

    def __init__(
        self,
        name: str,
        key: str | None,
        tls: ssl.SSLContext | None,
        *,
        up: Callable[[str], None],
        down: Callable[[str], None],
        received: Callable[[str, Sequence[Message]], None],
    ) -> None:
        self._name = name
        self.key = key
        """Opens the links of the platform; None if this broker was not given it yet."""
        self._tls = tls
        self._up = up
        self._down = down
        self._received = received
        self._version = 0
        self._wanted: dict[str, Neighbour] = {}
        self._lines: dict[str, Line] = {}
        self._dialling: dict[str, asyncio.Task[None]] = {}
        self.is_told = False
        """Whether the coordinator has said whom to link to."""

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def missing(self) -> list[str]:
        """Neighbours to which there should be a link."""
        return [name for name in self._wanted if name not in self._lines]

    @property
    def hello(self) -> Hello:
        """What this broker says of itself."""
        return Hello(self._name, self._version)

    def told(self, version: int, neighbours: Sequence[Neighbour]) -> None:
        """These are the neighbours, and no others."""
        before = self._wanted
        self._version, self.is_told = version, True
        self._wanted = {one.name: one for one in neighbours}
        for name in list(self._dialling):
            if self._wanted.get(name) != before.get(name):
                self._dialling.pop(name).cancel()
        for name, line in list(self._lines.items()):
            if name not in self._wanted:
                line.close(STRANGER, f"{self._name} is no longer a neighbour")
        for name in self.missing:
            self._dial_soon(name)

    def expects(self, name: str) -> bool:
        """Whether a broker is one of the neighbours that dial this one."""
        return name in self._wanted and name < self._name

    def accept(self, name: str, transport: asyncio.Transport) -> Line:
        """A neighbour has dialled, and both have said who they are."""
        line = self._line(name, accepted_frames())
        line.begin(transport)
        self._opened(name, line)
        return line

    def _opened(self, name: str, line: Line) -> None:
        """A link begins; one that there was with the same neighbour is over."""
        before = self._lines.pop(name, None)
        if before is not None:
            self._down(name)
            before.close(STRANGER, "there is a newer link")
        self._lines[name] = line
        logger.info("linked to %s", name)
        self._up(name)

    def send(self, neighbour: str, message: Message) -> None:
        """Send a message to a neighbour, if there is a link."""
        line = self._lines.get(neighbour)
        if line is not None:
            line.send(message)

    def waiting(self, neighbour: str) -> int:
        """Bytes that a neighbour has not taken yet."""
        line = self._lines.get(neighbour)
        return 0 if line is None else line.waiting

    def tick(self) -> None:
        """To be called about once a second."""
        now = time.monotonic()
        for line in list(self._lines.values()):
            line.tick(now)

    async def close(self) -> None:
        """End all links."""
        self._wanted = {}
        tasks = list(self._dialling.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for line in list(self._lines.values()):
            line.shutdown()

    def _line(self, name: str, frames: Protocol) -> Line:
        return Line(frames, partial(self._received, name), partial(self._lost, name))

    def _lost(self, name: str, line: Line, why: str) -> None:
        if self._lines.get(name) is not line:
            return
        del self._lines[name]
        logger.info("the link to %s has ended: %s", name, why)
        self._down(name)
        if name in self._wanted:
            self._dial_soon(name)

    def _dial_soon(self, name: str) -> None:
        if name > self._name and name not in self._dialling:
            self._dialling[name] = asyncio.get_running_loop().create_task(self._dial(self._wanted[name]))

    async def _dial(self, neighbour: Neighbour) -> None:
        pause, complaint = FIRST_PAUSE_S, ""
        while True:
            try:
                if self.key is None:
                    raise NoLink("the coordinator has not given this broker its keys yet")
                dialled = await dial(neighbour.url, self.key, self.hello, self._tls)
                if dialled.hello.name == neighbour.name:
                    break
                dialled.transport.abort()
                raise NoLink(f"at {neighbour.url} is another broker, {dialled.hello.name}")
            except NoLink as error:
                if str(error) != complaint:
                    complaint = str(error)
                    logger.info("no link to %s yet: %s", neighbour.name, error)
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE_S, pause * 2)
        self._dialling.pop(neighbour.name, None)
        line = self._line(neighbour.name, dialled.frames)
        line.begin(dialled.transport)
        self._opened(neighbour.name, line)
        line.read(dialled.early)
