"""What became of one publication: the answer to "why did I not get this?"."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from newsstand.cluster.executions import Running
from newsstand.cluster.facade import Facts
from newsstand.cluster.log import Entry, Lost
from newsstand.cluster.results import Results
from newsstand.model import Channel

MOST_STREAMS = 1000
"""Streams that a trace lists by name; it always counts them all."""


class _Line(msgspec.Struct):
    page: dict[str, object] | None = msgspec.field(default=None, name="_page")


def trace(
    found: Entry, channels: Iterable[Channel], results: Results, running: Callable[[str], Running | None]
) -> Facts:
    """When a publication was accepted, and what each channel that looks at its dataset has made of it."""
    return {
        "publication": found.seq,
        "accepted_at_ms": found.at_ms,
        "page": msgspec.json.decode(found.line, type=_Line).page,
        "channels": [_in_channel(found.seq, one, results, running(one.name)) for one in channels],
    }


def trace_lost(
    seq: int,
    lost: Lost,
    channels: Iterable[Channel],
    results: Results,
    running: Callable[[str], Running | None],
) -> Facts:
    """What became of a publication that the log has lost: only what was executed before the loss has seen it."""
    told = [_in_channel(seq, one, results, running(one.name)) for one in channels]
    return {
        "publication": seq,
        "lost": {"first": lost.first, "last": lost.last, "at_ms": lost.at_ms, "why": lost.why},
        "channels": [_unless_lost(facts, lost) for facts in told],
    }


def _unless_lost(facts: Facts, lost: Lost) -> Facts:
    at_ms = facts.get("at_ms")
    seen = isinstance(at_ms, int) and at_ms <= lost.at_ms
    before = facts["state"] == "published before the channel began"
    return facts if seen or before else {"channel": facts["channel"], "state": "lost"}


def _in_channel(seq: int, channel: Channel, results: Results, running: Running | None) -> Facts:
    facts: Facts = {"channel": channel.name}
    executed = results.executions(channel.name, limit=1, publication=seq)
    if not executed:
        position = results.position(channel.name)
        if position is not None and seq <= position:
            return facts | {"state": "published before the channel began"}
        failure = running.failure if running else None
        if failure is not None:
            return facts | {"state": "failing", "error": failure.error, "since_ms": failure.since_ms}
        return facts | {"state": "waiting", "behind": seq - (position or 0)}
    execution = executed[0]
    reached = results.reached(execution.number, seq)
    told = results.deliveries(execution.number)
    return facts | {
        "state": "evaluated",
        "execution": execution.number,
        "at_ms": execution.at_ms,
        "results_of_execution": execution.results,
        "reached": len(reached),
        "streams": [{"stream": stream, "position": position} for stream, position in reached[:MOST_STREAMS]],
        "brokers": [{"broker": one.broker, "attempts": one.attempts, "told_at_ms": one.told_ms} for one in told],
    }
