"""The town hall publishes, people receive, and a late subscriber queries the history.

python play.py COORDINATOR
"""

from __future__ import annotations

import asyncio
import sys

from newsstand.client import Client, Topics

PASSWORD = "a good password"
WARNINGS = [
    ("harbour", 2, "The harbour is closed to small boats."),
    ("market", 3, "The market ends at noon."),
    ("harbour", 5, "Leave the harbour."),
    ("university", 4, "Lectures are off."),
]
STORM = "topic = 'warnings' and severity >= 3"
HARBOUR = "topic in ('warnings', 'roadworks') and place = 'harbour'"


async def until_kept(town_hall: Topics) -> None:
    """Wait until the storages are assigned, shortly after the platform starts."""
    for topic in ("warnings", "roadworks"):
        while not (await town_hall.publish(topic, {"severity": 0}, "A test.")).stored:
            await asyncio.sleep(0.2)


async def until_heard(town_hall: Topics, listener: Topics) -> None:
    """Wait until all brokers know the subscription."""
    await listener.subscribe("topic = 'sound check'")
    heard = asyncio.ensure_future(anext(aiter(listener)))
    while not heard.done():
        await town_hall.publish("sound check")
        await asyncio.wait([heard], timeout=0.1)


async def listen(listener: Topics, last: str) -> None:
    """Print warnings up to the last one."""
    async for message in listener:
        if message.topic == "warnings":
            print(f"student: {message.body}", flush=True)
            if message.body == last:
                return


async def play(coordinator: str) -> None:
    """Play all scenes."""
    async with (
        Client(coordinator, "town-hall", PASSWORD, register=True, near=(33.64, -117.85)) as hall,
        Client(coordinator, "student", PASSWORD, register=True, near=(33.68, -117.80)) as student,
        hall.topics() as town_hall,
        student.topics() as listener,
    ):
        await until_kept(town_hall)
        await listener.subscribe(STORM)
        await until_heard(town_hall, listener)
        listening = asyncio.create_task(listen(listener, WARNINGS[-1][2]))
        await town_hall.publish("roadworks", {"place": "harbour"}, "The bridge is up.")
        for place, severity, text in WARNINGS:
            await town_hall.publish("warnings", {"place": place, "severity": severity}, text)
        await listening
    async with (
        Client(coordinator, "sailor", PASSWORD, register=True, near=(33.60, -117.90)) as client,
        client.topics() as late,
    ):
        async for message in late.history(HARBOUR):
            print(f"sailor, later: {message.topic}: {message.body}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python play.py COORDINATOR, such as http://127.0.0.1:8770")
    asyncio.run(play(sys.argv[1]))
