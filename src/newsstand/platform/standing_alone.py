"""A platform whose brokers stand alone: every subscriber knows its broker, and nobody is moved."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from newsstand.platform.parts import Part, Platform


@dataclass(frozen=True)
class StandingAlone(Platform):
    """A cluster and brokers; the coordinator is planned and never started."""

    @property
    def stages(self) -> list[list[Part]]:
        return [[self.cluster], list(self.brokers)]


def without_coordinator(platform: Platform) -> StandingAlone:
    """The same platform, whose brokers know of no coordinator."""
    settings = {
        file: text if file.name != "broker.toml" else re.sub(r"^coordinator = .*\n", "", text, flags=re.M)
        for file, text in platform.settings.items()
    }
    known = {one.name: getattr(platform, one.name) for one in fields(Platform)}
    return StandingAlone(**{**known, "settings": settings})
