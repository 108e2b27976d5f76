"""Notifications to subscribers when the cluster suspends a stream."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
from support.broker.service_scene import Scene, play

from newsstand.broker.websocket.connection import suspension_frame
from newsstand.wire.cluster import StreamStatus, StreamSuspension, SubscribeRequest
from newsstand.wire.notifications import read_notification

ERROR = "PatternSyntaxException: Unclosed group near index 1"
SUSPENSION = StreamSuspension(ERROR, 70)


def notification(channel: str | None, *streams: str) -> bytes:
    """As the cluster writes it."""
    suspended = [{"subscription": one, "error": ERROR, "since_ms": 70} for one in streams]
    received = {"delivery": 3, "execution": None, "channel": channel, "at_ms": 70, "mode": "pull", "streams": []}
    return json.dumps({**received, "pages": [], "summary": channel is None, "suspended": suspended}).encode()


def frames(scene: Scene) -> list[tuple[str, object]]:
    """Record the notifications of followers from now on."""
    noted: list[tuple[str, object]] = []

    def note(stream: str, position: int, suspended: object) -> None:
        noted.append((stream, suspended))

    scene.hub.suspended = note  # type: ignore[method-assign]
    return noted


def test_suspension_notified_to_followers_until_it_ends(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        ann = await scene.member("ann")
        bad, good = await scene.follows(ann, "("), await scene.follows(ann, "f.*")
        received = frames(scene)
        stream = scene.cluster.stream("(")
        for _ in range(2):
            scene.edge.on_notification(read_notification(notification("of_kind", stream)))
        assert received == [(stream, SUSPENSION)], "once"
        assert scene.edge.subscription(ann, bad).suspended == SUSPENSION
        assert scene.edge.subscription(ann, good).suspended is None
        scene.edge.on_notification(read_notification(notification("another")))
        assert scene.edge.subscription(ann, bad).suspended == SUSPENSION, "of another channel"
        scene.edge.on_notification(
            read_notification(b'{"delivery":4,"execution":7,"channel":"of_kind","at_ms":1,"streams":[]}')
        )
        assert scene.edge.subscription(ann, bad).suspended == SUSPENSION, "of something else"
        listed = msgspec.json.decode(msgspec.json.encode(scene.edge.subscriptions(ann)))
        assert {"error": ERROR, "since_ms": 70} in [one["suspended"] for one in listed]
        scene.edge.on_notification(read_notification(notification(None)))
        assert received[-1] == (stream, None)
        assert scene.edge.subscription(ann, bad).suspended is None

    play(tmp_path, story)


def test_suspensions_known_after_a_start(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        subscribe = scene.cluster.subscribe

        async def suspended(wanted: Sequence[SubscribeRequest]) -> list[tuple[str, StreamStatus]]:
            return [
                (key, StreamStatus(one.head, one.earliest, SUSPENSION)) for key, one in await subscribe(wanted)
            ]

        scene.cluster.subscribe = suspended  # type: ignore[method-assign]
        ann = await scene.member("ann")
        bad = await scene.follows(ann, "(")
        assert scene.edge.subscription(ann, bad).suspended == SUSPENSION
        await scene.edge.unsubscribe(ann, bad)
        assert scene.edge.suspended == {}

    play(tmp_path, story)


def test_suspension_notification_has_the_fields_of_other_notifications() -> None:
    frame = suspension_frame("s1", 4, SUSPENSION)
    said = json.loads(frame[frame.index(b"{") :])
    assert said == {"stream": "s1", "position": 4, "suspended": {"error": ERROR, "since_ms": 70}}
