"""How many messages a second two real brokers pass on over one link, from one publisher to one subscriber.

.venv/bin/python benchmarks/overlay_link.py [MESSAGES]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from websockets.asyncio.client import connect

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.broker.topic_world import World, world

AT_ONCE = 200


async def measure(made: World, topic: str, messages: int) -> dict[str, float]:
    """Publish at one broker as fast as answers come, and count what arrives at the other."""
    clients = [made.login(broker, f"{broker}-{topic}") for broker in ("b1", "b2")]
    sockets = [
        connect(
            str(one.base_url).replace("http", "ws", 1).rstrip("/") + "/topics",
            additional_headers={"Authorization": one.headers["Authorization"]},
            max_queue=None,
        )
        for one in clients
    ]
    async with sockets[0] as publisher, sockets[1] as subscriber:
        await publisher.recv()
        await subscriber.recv()
        wanted = f"topic = '{topic}' and severity >= 1"
        await subscriber.send(msgspec.json.encode({"subscribe": wanted, "id": 1}).decode())
        await subscriber.recv()
        await asyncio.sleep(1)
        said = {"topic": topic, "attributes": {"severity": 4}, "body": {"text": "Take shelter, and take it now."}}
        frame = msgspec.json.encode({"publish": said, "id": 1}).decode()
        room = asyncio.Semaphore(AT_ONCE)
        begun = time.monotonic()

        async def answered() -> float:
            for _ in range(messages):
                await publisher.recv()
                room.release()
            return time.monotonic() - begun

        async def delivered() -> float:
            for _ in range(messages):
                await subscriber.recv()
            return time.monotonic() - begun

        counting = asyncio.gather(answered(), delivered())
        for _ in range(messages):
            await room.acquire()
            await publisher.send(frame)
        seconds = await counting
    for one in clients:
        one.close()
    return {"published": messages / seconds[0], "delivered": messages / seconds[1]}


def main() -> None:
    """Measure a topic without a storage, and one with a storage at the other broker."""
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory() as folder, world(Path(folder), ("b1", "b2")) as made:
        made.placed(kept=["b2"])
        for topic in ("spoken", "kept"):
            rates = asyncio.run(measure(made, topic, messages))
            print(f"{topic}: " + ", ".join(f"{rate:,.0f} {what}/s" for what, rate in rates.items()))


if __name__ == "__main__":
    main()
