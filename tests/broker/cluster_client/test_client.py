"""Calls of the data cluster's API, and the errors of its responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
import uvicorn
from support.event_loops import run

from newsstand.broker.cluster_client.client import (
    ClusterClient,
    ClusterUnavailable,
    SubscribeRequest,
)
from newsstand.broker.results.broker import PositionRange
from newsstand.errors import BadInput, BadValues, NotFound, ResultsExpired
from newsstand.http.client import KEEP_ALIVE_S, HttpClient, HttpResponse
from newsstand.wire.cluster import FetchedResult
from newsstand.wire.notifications import read_notification


class Responses:
    """The HTTP client of a cluster whose responses a test gives: status and body, for a path and a JSON body."""

    def __init__(self, respond: Callable[[str, object], tuple[int, bytes]]) -> None:
        self._respond = respond

    async def request(
        self, method: str, path: str, *, json: object, timeout_s: float, most_bytes: int
    ) -> HttpResponse:
        status, content = self._respond(path, msgspec.to_builtins(json))
        return HttpResponse(f"http://cluster{path}", status, {}, content)


def positions(results: list[FetchedResult]) -> list[int]:
    return [one.position for one in results]


def upstream(respond: Callable[[str, object], tuple[int, bytes]]) -> ClusterClient:
    return ClusterClient(cast(HttpClient, Responses(respond)), "edge")


def test_channels_are_read_to_the_last_page() -> None:
    pages = {"": (["a", "b"], "b"), "b": (["c"], None)}

    def answers(path: str, _: object) -> tuple[int, bytes]:
        names, following = pages[path.partition("?after=")[2]]
        return 200, msgspec.json.encode({"channels": [{"name": name} for name in names], "next": following})

    async def story() -> None:
        assert list(await upstream(answers).channels()) == ["a", "b", "c"]

    run(story)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (404, b'{"error": "no broker"}', NotFound),
        (410, b'{"error": "gone", "earliest": 7}', ResultsExpired),
        (422, b'{"error": "bad"}', BadValues),
        (413, b"", BadInput),
        (401, b'{"error": "token"}', ClusterUnavailable),
        (403, b'{"error": "scope"}', ClusterUnavailable),
        (429, b"{}", ClusterUnavailable),
        (500, b"<html>", ClusterUnavailable),
        (503, b"[]", ClusterUnavailable),
        (200, b"<html>", ClusterUnavailable),
        (200, b"{}", ClusterUnavailable),
        (200, b"[" * 100_000, ClusterUnavailable),
    ],
)
def test_error_responses_raise_their_errors(status: int, body: bytes, error: type[Exception]) -> None:
    async def story() -> None:
        cluster = upstream(lambda path, _: (status, body))
        for call in (
            cluster.channels(),
            cluster.subscribe([SubscribeRequest("near", ("x",), 1)]),
            cluster.read({"s": PositionRange(0, 1)}),
        ):
            with pytest.raises(error):
                await call
        with pytest.raises(error):
            [one async for one in cluster.subscriptions()]
        assert cluster.is_up == (status < 500)

    run(story)


def test_unreachable_cluster_raises_unavailable() -> None:
    async def story() -> None:
        async with HttpClient("http://127.0.0.1:1") as http:
            cluster = ClusterClient(http, "edge")
            with pytest.raises(ClusterUnavailable):
                await cluster.register("http://here/notifications")
            with pytest.raises(ClusterUnavailable):
                async with cluster.page("a" * 32, {}):
                    pass
            assert not cluster.is_up

    run(story)


def test_idle_connections_end_before_the_cluster_closes_them() -> None:
    """Otherwise a read now and then meets a connection that is just being closed, and fails."""
    assert uvicorn.Config("").timeout_keep_alive > KEEP_ALIVE_S


def test_long_span_is_read_in_several_calls() -> None:
    """The cluster ends a response at a number of bytes."""
    calls = []

    def answers(_: str, asked: Any) -> tuple[int, bytes]:
        calls.append([one["subscription"] for one in asked])
        room, slices = 3, []
        for one in asked:
            until = min(one["until"], one["after"] + min(room, one["limit"]))
            found = [{"position": n, "at_ms": 0} for n in range(one["after"] + 1, until + 1)]
            room -= len(found) if one["subscription"].startswith("f") else 0
            stream = {"subscription": one["subscription"], "results": found, "head": 5, "earliest": 1}
            if one["subscription"] == "old":
                stream |= {"results": [], "earliest": 4}
            if one["subscription"] != "unknown":
                slices.append(stream)
        return 200, msgspec.json.encode({"streams": slices})

    async def story() -> None:
        spans = dict.fromkeys(["old", "unknown", "fire", "flood"], PositionRange(0, 5))
        found = await upstream(answers).read(spans)
        assert isinstance(found["old"], ResultsExpired)
        assert isinstance(found["unknown"], ClusterUnavailable)
        for name in ("fire", "flood"):
            results = found[name]
            assert isinstance(results, list)
            assert positions(results) == [1, 2, 3, 4, 5]
        assert len(calls) == 4

    run(story)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"streams":[1]}', b'{"streams":[{"subscription":1}]}'])
def test_malformed_notification_is_bad_input(body: bytes) -> None:
    with pytest.raises(BadInput, match="body"):
        read_notification(body)
