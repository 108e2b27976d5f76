"""What a broker tells its subscribers when the cluster leaves a stream out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
from test_broker_edge import Scene, play

from newsstand.broker.socket_frames import suspension_frame
from newsstand.broker.told import Suspension, read_told
from newsstand.broker.upstream import Standing, Wanted

ERROR = "PatternSyntaxException: Unclosed group near index 1"
SUSPENSION = Suspension(ERROR, 70)


def notification(channel: str | None, *streams: str) -> bytes:
    """As the cluster writes it."""
    suspended = [{"subscription": one, "error": ERROR, "since_ms": 70} for one in streams]
    told = {"delivery": 3, "execution": None, "channel": channel, "at_ms": 70, "mode": "pull", "streams": []}
    return json.dumps({**told, "pages": [], "summary": channel is None, "suspended": suspended}).encode()


def frames(scene: Scene) -> list[tuple[str, object]]:
    """Note what followers are told from now on."""
    noted: list[tuple[str, object]] = []

    def note(stream: str, position: int, suspended: object) -> None:
        noted.append((stream, suspended))

    scene.hub.suspended = note  # type: ignore[method-assign]
    return noted


def test_a_suspension_is_told_to_followers_and_seen_until_it_is_over(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        ann = await scene.member("ann")
        bad, good = await scene.follows(ann, "("), await scene.follows(ann, "f.*")
        told = frames(scene)
        stream = scene.cluster.stream("(")
        for _ in range(2):
            scene.edge.told(read_told(notification("of_kind", stream)))
        assert told == [(stream, SUSPENSION)], "once"
        assert scene.edge.subscription(ann, bad).suspended == SUSPENSION
        assert scene.edge.subscription(ann, good).suspended is None
        scene.edge.told(read_told(notification("another")))
        assert scene.edge.subscription(ann, bad).suspended == SUSPENSION, "of another channel"
        scene.edge.told(read_told(b'{"delivery":4,"execution":7,"channel":"of_kind","at_ms":1,"streams":[]}'))
        assert scene.edge.subscription(ann, bad).suspended == SUSPENSION, "of something else"
        listed = msgspec.json.decode(msgspec.json.encode(scene.edge.subscriptions(ann)))
        assert {"error": ERROR, "since_ms": 70} in [one["suspended"] for one in listed]
        scene.edge.told(read_told(notification(None)))
        assert told[-1] == (stream, None)
        assert scene.edge.subscription(ann, bad).suspended is None

    play(tmp_path, story)


def test_a_broker_that_starts_learns_of_suspensions_from_the_cluster(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        subscribe = scene.cluster.subscribe

        async def suspended(wanted: Sequence[Wanted]) -> list[tuple[str, Standing]]:
            return [(key, Standing(one.head, one.earliest, SUSPENSION)) for key, one in await subscribe(wanted)]

        scene.cluster.subscribe = suspended  # type: ignore[method-assign]
        ann = await scene.member("ann")
        bad = await scene.follows(ann, "(")
        assert scene.edge.subscription(ann, bad).suspended == SUSPENSION
        await scene.edge.unsubscribe(ann, bad)
        assert scene.edge._suspended == {}

    play(tmp_path, story)


def test_the_signal_has_what_other_signals_have() -> None:
    frame = suspension_frame("s1", 4, SUSPENSION)
    said = json.loads(frame[frame.index(b"{") :])
    assert said == {"stream": "s1", "position": 4, "suspended": {"error": ERROR, "since_ms": 70}}
