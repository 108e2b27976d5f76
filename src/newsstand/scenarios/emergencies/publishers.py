"""Those who publish in the city: witnesses, shelters, and everybody's telephone."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque

from newsstand.client import Publisher
from newsstand.scenarios.emergencies.city import City, Record
from newsstand.scenarios.emergencies.tally import Tally

MOVES_S = 5.0
"""Seconds between two rounds of locations."""

SHELTER_S = 2.0
"""Seconds between two news of shelters."""


class Publishers:
    """All that is published, and what the map shows of it."""

    def __init__(self, city: City, publisher: Publisher, tally: Tally, speed: float, reports_per_s: float) -> None:
        self._city = city
        self._publisher = publisher
        self._tally = tally
        self._speed = speed
        self._rate = reports_per_s
        self._draw = random.Random(city.seed)
        self.reports: deque[tuple[float, Record]] = deque(maxlen=200)
        """The newest, and when each was published, by the monotonic clock."""
        self.shelters: dict[object, Record] = {str(one["id"]): one for one in city.shelters()}
        self.locations: dict[object, Record] = {str(one["user"]): one for one in city.locations(0.0)}

    async def open(self) -> None:
        """Tell where the shelters are, and everybody."""
        await self._publish("shelters", list(self.shelters.values()))
        await self._publish("locations", list(self.locations.values()))

    async def drill(self) -> None:
        """Tell of an emergency that is none, at a place where nobody is."""
        drill = {"id": "drill", "kind": "drill", "lat": 0.0, "lon": 0.0, "severity": 5, "text": "Only a drill."}
        await self._publisher.publish("reports", drill)

    async def publish(self, over: asyncio.Event) -> None:
        """Publish as things happen, until it is over."""
        began = time.monotonic()
        next_report = next_shelter = next_move = 0.0
        while not over.is_set():
            now = time.monotonic() - began
            reports: list[Record] = []
            while now >= next_report:
                reports.append(self._city.report(now * self._speed))
                next_report += self._draw.uniform(0.5, 1.5) / self._rate
            if reports:
                await self._publish("reports", reports)
                self.reports.extend((time.monotonic(), report) for report in reports)
            if now >= next_shelter:
                news = self._city.shelter_news()
                self.shelters[str(news["id"])] = news
                await self._publish("shelters", [news])
                next_shelter = now + SHELTER_S
            if now >= next_move:
                places = self._city.locations(now * self._speed)
                moved = [one for one in places if self.locations[str(one["user"])] != one]
                self.locations.update({str(one["user"]): one for one in moved})
                if moved:
                    await self._publish("locations", moved)
                next_move = now + MOVES_S
            await asyncio.sleep(max(0.01, min(next_report, next_shelter, next_move) - (time.monotonic() - began)))

    async def _publish(self, dataset: str, records: list[Record]) -> None:
        receipt = await self._publisher.publish(dataset, records)
        self._tally.publications += receipt.accepted
