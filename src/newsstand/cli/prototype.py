"""The experiment with the prototype (Uddin and Venkatasubramanian 2018, section VI) on a platform of its own."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from newsstand.cli.progress import say

if TYPE_CHECKING:
    from newsstand.platform.parts import Platform
    from newsstand.scenarios.emergencies.activity import ActivityTrace
    from newsstand.scenarios.emergencies.experiment_app import Scheme
    from newsstand.scenarios.emergencies.playback import Row


@dataclass(frozen=True)
class Prototype:
    """What is played, for all runs alike."""

    minutes: float
    """Of the trace."""
    warm_up_minutes: float
    factor: float
    subscribers: int
    seed: int

    @property
    def digest(self) -> str:
        """What results of another experiment, or of another version, do not share."""
        return hashlib.sha256(f"{metadata.version('newsstand')} {self}".encode()).hexdigest()[:8]


def run_prototype(
    prototype: Prototype, plays: Sequence[Sequence[Scheme]], folder: Path, spark: Sequence[str] = ()
) -> list[Row] | None:
    """Play what was not played yet, brokers of one play at the same time; None if it was stopped.

    The rows of each play are kept in `folder`. NC plays in every one: it is what the others are compared with.
    """
    from newsstand.scenarios.emergencies.activity import make_trace
    from newsstand.scenarios.emergencies.experiment_app import Scheme

    folder.mkdir(parents=True, exist_ok=True)
    trace = make_trace(prototype.seed, prototype.minutes * 60, prototype.subscribers)
    none = Scheme("nc", 0)
    for number, schemes in enumerate(plays, 1):
        found = {row["broker"] for row in _kept(prototype, folder)}
        left = [scheme for scheme in schemes if scheme.name not in found]
        if not left:
            say(f"play {number} of {len(plays)}: done before")
            continue
        todo = left if none in left else [none, *left]
        lasts = prototype.minutes / prototype.factor
        say(
            f"play {number} of {len(plays)}: {len(todo)} brokers, {trace.frontends} subscriptions at each, "
            f"merged into {trace.backends}; {lasts:.0f} minutes as soon as all has started"
        )
        played = asyncio.run(_play(prototype, todo, trace, folder / "platform.log", spark))
        if played is None:
            return None
        _keep(prototype, folder, todo, played)
    wanted = {none.name, *(scheme.name for schemes in plays for scheme in schemes)}
    return [row for row in _kept(prototype, folder) if row["broker"] in wanted]


def _keep(prototype: Prototype, folder: Path, schemes: Sequence[Scheme], played: list[Row]) -> None:
    by_name = {row["broker"]: row for row in played}
    rows = [{**asdict(scheme), **by_name[scheme.name]} for scheme in schemes]
    names = hashlib.sha256(" ".join(scheme.name for scheme in schemes).encode()).hexdigest()[:8]
    file = folder / f"prototype-{prototype.digest}-{names}.json"
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(rows, indent=1))
    partial.replace(file)


def _kept(prototype: Prototype, folder: Path) -> list[Row]:
    """The rows of all plays of the experiment so far; `play` tells those of one play."""
    return [
        {"play": file.stem.rpartition("-")[2], **row}
        for file in sorted(folder.glob(f"prototype-{prototype.digest}-*.json"))
        for row in json.loads(file.read_text())
    ]


async def _play(
    prototype: Prototype, schemes: Sequence[Scheme], trace: ActivityTrace, log: Path, spark: Sequence[str]
) -> list[Row] | None:
    from newsstand.cluster.app_folder import read_app
    from newsstand.platform.declared import read_declared
    from newsstand.platform.enrolment import access_token, enrol
    from newsstand.platform.parts import Ports, plan
    from newsstand.platform.running import Stopped, running
    from newsstand.platform.slow_link import slow_link
    from newsstand.platform.standing_alone import without_coordinator
    from newsstand.scenarios.emergencies import playback
    from newsstand.scenarios.emergencies.experiment_app import write_experiment

    now_s = int(time.time())
    people = {
        name: [(channel, list(values.values())) for channel, values in held]
        for name, held in trace.initial.items()
    }
    async with AsyncExitStack() as stack:
        app = Path(stack.enter_context(TemporaryDirectory(prefix="newsstand-prototype-"))) / "emergencies"
        write_experiment(app, schemes, factor=prototype.factor)
        platform: Platform = without_coordinator(
            plan(read_app(app), read_declared(app), ports=Ports(0), spark=spark)
        )
        for scheme in schemes:
            enrol(platform.folder.broker(scheme.name), people, now_s)
            if scheme.delay_ms:
                link = slow_link(platform.cluster.url, scheme.delay_ms / 1000)
                platform = _behind(platform, scheme.name, await stack.enter_async_context(link))
        try:
            supervisor = await stack.enter_async_context(running(platform, say, log))
            assert platform.admin_token is not None
            tokens = {name: access_token(name, platform.folder.secret, now_s) for name in people}
            say(f"load {os.getloadavg()[0]:.1f} at the start")
            played = await playback.play(
                trace,
                playback.Pace(prototype.factor, prototype.warm_up_minutes * 60),
                [
                    playback.Watched(name, part.url, tokens)
                    for name, part in zip(platform.names, platform.brokers, strict=True)
                ],
                cluster=platform.cluster.url,
                cluster_token=platform.admin_token.read_text().strip(),
                admin=platform.folder.operator_token("prototype"),
                stopping=supervisor.stopping,
                tell=say,
            )
            say(f"load {os.getloadavg()[0]:.1f} at the end")
            return played
        except Stopped:
            return None


def _behind(platform: Platform, broker: str, link: str) -> Platform:
    """The same platform, in which a broker reaches the cluster by a link."""
    file = platform.folder.broker(broker) / "broker.toml"
    text = platform.settings[file].replace(platform.cluster.url, link)
    return replace(platform, settings={**platform.settings, file: text})
