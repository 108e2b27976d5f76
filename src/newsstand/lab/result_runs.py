"""One table of broker events under many settings: in this process, by the broker's core or compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from newsstand.lab.broker_events import BrokerEvents
from newsstand.lab.result_counts import Measured
from newsstand.lab.result_replay import ReplaySetting, replay

Engine = Literal["auto", "core", "compiled"]
"""The core of the live broker; the same compiled, which comes to the same; or whichever is done first."""

WORTH_COMPILING = 200_000
"""Events times settings from which on: below, loading the compiler takes longer than the core does."""
WORTH_SPARK = 20_000_000
"""Events times settings from which on several settings go to Spark: below, starting it takes longer."""


def chosen(engine: Engine, events: BrokerEvents, settings: Sequence[ReplaySetting]) -> Literal["core", "compiled"]:
    """The engine to take."""
    if engine == "auto":
        return "compiled" if len(events) * len(settings) >= WORTH_COMPILING else "core"
    return engine


def is_for_spark(events: BrokerEvents, settings: Sequence[ReplaySetting]) -> bool:
    """Whether several processes are done before one is."""
    return len(settings) > 1 and len(events) * len(settings) >= WORTH_SPARK


def replay_all(
    events: BrokerEvents, settings: Sequence[ReplaySetting], engine: Literal["core", "compiled"]
) -> Iterator[dict[str, Measured]]:
    """The measures under each setting, in their order, one after the other."""
    ends = [setting.end_of(events) for setting in settings]
    if engine == "core":
        for setting in settings:
            yield replay(events, setting)
        return
    from newsstand.lab.result_kernel import arrange_events, is_compiled, replay_arranged

    table = arrange_events(events)
    for setting, end_ms in zip(settings, ends, strict=True):
        yield replay_arranged(table, setting, end_ms) if is_compiled(setting) else replay(events, setting)
