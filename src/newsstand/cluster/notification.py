"""What a notification says: a delivery of the outbox as JSON."""

from __future__ import annotations

import msgspec

from newsstand.cluster.results import Delivery, Gone, Moved, Results, Suspended
from newsstand.model import Result

PING = b'{"ping":true}'
"""What a broker that is away is asked, under the delivery number 0."""


def body_of(results: Results, delivery: Delivery, push_limits: tuple[int, int] | None) -> bytes:
    """The body of a notification; with the results themselves if there are limits for them (how many, what bytes).

    Results past the limits are left out. The position is told all the same, and the broker pulls the rest.
    """
    room = list(push_limits) if push_limits is not None else [0, 0]
    streams = []
    for moved in results.moved(delivery):
        told: dict[str, object] = {"subscription": moved.subscription, "position": moved.position}
        if push_limits is not None and (carried := _carried(results, moved, room)):
            told["results"] = carried
        streams.append(told)
    suspensions: dict[str, object] = {}
    if delivery.execution is None:
        # All that are suspended now, so that a broker knows of the others that they are not.
        suspensions["suspended"] = [
            {"subscription": one.subscription, **suspended_facts(one)}
            for one in results.suspended(delivery.broker, delivery.channel)
        ]
    return msgspec.json.encode(
        {
            "delivery": delivery.id,
            "execution": delivery.execution,
            "channel": delivery.channel,
            "at_ms": delivery.at_ms,
            "mode": "pull" if push_limits is None else "push",
            "streams": streams,
            "pages": [
                {"page": page.page, "size": page.size, "subscriptions": page.subscriptions}
                for page in results.wanted_pages(delivery)
            ],
            "summary": delivery.execution is None and delivery.channel is None,
            **suspensions,
        }
    )


def _carried(results: Results, moved: Moved, room: list[int]) -> list[dict[str, object]]:
    """The first results of a stream that there is `room` for, which is used up by them."""
    if room[0] <= 0 or room[1] <= 0 or (subscription := results.subscription(moved.subscription)) is None:
        return []
    try:
        found = results.read(subscription.stream, moved.first - 1, moved.position, room[0])
    except Gone:
        return []
    carried = []
    for result in found:
        room[1] -= len(result.payload.encode())
        if room[1] < 0:
            break
        room[0] -= 1
        carried.append(result_facts(result))
    return carried


def suspended_facts(suspended: Suspended) -> dict[str, object]:
    """Why and since when a subscription is suspended."""
    return {"error": suspended.error, "since_ms": suspended.since_ms}


def result_facts(result: Result) -> dict[str, object]:
    """A result for JSON; its payload is put in as it is, for it is JSON already."""
    page = None if result.page is None else {"id": result.page.id, "size": result.page.size}
    return {
        "position": result.position,
        "at_ms": result.at_ms,
        "payload": msgspec.Raw(result.payload.encode()),
        "publication": result.publication,
        "page": page,
    }
