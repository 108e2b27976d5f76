"""A platform whose brokers stand alone: every subscriber knows its broker, and nobody is moved."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from newsstand.platform.parts import Part, Platform, toml_value


@dataclass(frozen=True)
class StandingAlone(Platform):
    """A cluster and brokers; the coordinator is planned and never started."""

    @property
    def stages(self) -> list[list[Part]]:
        return [[self.cluster], list(self.brokers)]


def without_coordinator(platform: Platform) -> StandingAlone:
    """The same platform, whose brokers know of no coordinator, and have the secret instead."""
    secret = f"secret_file = {toml_value(platform.folder.secret_file)}\n"
    settings = {
        file: text if file.name != "broker.toml" else re.sub(r"^coordinator = .*\n", secret, text, flags=re.M)
        for file, text in platform.settings.items()
    }
    known = {one.name: getattr(platform, one.name) for one in fields(Platform)}
    return StandingAlone(**{**known, "settings": settings})
