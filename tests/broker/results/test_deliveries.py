"""The history of deliveries: what a broker still knows of recent positions, and for how long."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from support.profiles import examples

from newsstand.broker.results.deliveries import DeliveryHistory
from newsstand.http.app import StageHistogram
from newsstand.wire.notifications import Notification, StreamDelivery, StreamPosition, StreamProgress


def notification(*positions: tuple[str, int], at_ms: int = 0, summary: bool = False) -> Notification[object]:
    streams: list[StreamProgress[object]] = [StreamProgress(stream, position) for stream, position in positions]
    return Notification(1, 1, "of_kind", at_ms, "pull", streams, summary=summary)


def notify(history: DeliveryHistory, now: int, *positions: tuple[str, int], head: int = 0) -> None:
    history.notified(notification(*positions), lambda _: head, now)


def known(history: DeliveryHistory, now: int, *positions: tuple[str, int]) -> list[StreamDelivery]:
    return history.report([StreamPosition(*one) for one in positions], now).streams


def counts(registry: CollectorRegistry) -> dict[str, tuple[float, float]]:
    """The number of observations and the seconds of each stage."""
    found: dict[str, tuple[float, float]] = {}
    (family,) = registry.collect()
    for sample in family.samples:
        count, seconds = found.get(sample.labels["stage"], (0.0, 0.0))
        if sample.name.endswith("_count"):
            found[sample.labels["stage"]] = (sample.value, seconds)
        elif sample.name.endswith("_sum"):
            found[sample.labels["stage"]] = (count, sample.value)
    return found


def test_stages_of_delivery_are_reported_in_order() -> None:
    history = DeliveryHistory()
    notify(history, 100, ("a", 2))
    assert known(history, 101, ("a", 1), ("a", 2)) == [StreamDelivery("a", 1, 100), StreamDelivery("a", 2, 100)]
    history.pulled("a", 1, 110)
    assert known(history, 111, ("a", 1))[0].pulled_ms is None, "a part of the delivery"
    history.pulled("a", 2, 120)
    history.signalled("a", 2, 3, 130)
    history.signalled("a", 2, 9, 135)
    history.read("a", 0, 1, 138)
    history.read("a", 1, 2, 140)
    history.read("a", 0, 2, 145)
    history.acknowledged("a", 0, 2, 150)
    history.acknowledged("a", 1, 2, 160)
    history.acknowledged("a", 2, 2, 170)
    assert known(history, 200, ("a", 2)) == [StreamDelivery("a", 2, 100, 120, 130, 3, 140, 2, 150, 160)]


def test_unknown_positions_are_not_reported() -> None:
    history = DeliveryHistory()
    notify(history, 100, ("a", 7), head=5)
    asked = [("a", 5), ("a", 6), ("a", 7), ("a", 8), ("b", 6)]
    assert [one.position for one in known(history, 100, *asked)] == [6, 7]


def test_streams_that_do_not_advance_or_have_no_followers_are_ignored() -> None:
    history = DeliveryHistory()
    notify(history, 100, ("a", 5), head=5)
    history.notified(notification(("b", 1)), lambda _: None, 100)
    assert known(history, 100, ("a", 5), ("b", 1)) == []


def test_entries_are_bounded_by_number_and_oldest_are_removed_first() -> None:
    history = DeliveryHistory(entries=3)
    for number in range(1, 6):
        notify(history, number, (f"s{number}", 1))
    every = [(f"s{number}", 1) for number in range(1, 6)]
    assert [one.subscription for one in known(history, 5, *every)] == ["s3", "s4", "s5"]
    notify(history, 6, *((f"t{number}", 1) for number in range(100)))
    many = [(f"t{number}", 1) for number in range(100)]
    assert [one.subscription for one in known(history, 6, *every, *many)] == ["t97", "t98", "t99"]


def test_entries_of_one_stream_are_bounded() -> None:
    history = DeliveryHistory(per_stream=2)
    for position in range(1, 5):
        notify(history, position, ("a", position), head=position - 1)
    notify(history, 5, ("b", 1))
    assert [one.position for one in known(history, 5, *(("a", one) for one in range(1, 5)))] == [3, 4]
    assert len(known(history, 5, ("b", 1))) == 1


def test_entries_expire_with_age() -> None:
    history = DeliveryHistory(age_ms=1000)
    notify(history, 1000, ("a", 1))
    notify(history, 1500, ("a", 2), head=1)
    assert len(known(history, 2000, ("a", 1), ("a", 2))) == 2
    assert [one.position for one in known(history, 2001, ("a", 1), ("a", 2))] == [2]
    history.expire(9000)
    assert known(history, 1500, ("a", 2)) == []


def test_new_history_knows_nothing() -> None:
    history = DeliveryHistory()
    history.pulled("a", 1, 1)
    history.signalled("a", 1, 1, 1)
    history.read("a", 0, 1, 1)
    history.acknowledged("a", 0, 1, 1)
    assert known(history, 1, ("a", 1)) == []


def test_stages_are_observed_once_for_each_stream() -> None:
    registry = CollectorRegistry()
    ticks = iter(range(100))
    history = DeliveryHistory(StageHistogram("stages", "Stages.", registry), clock=lambda: float(next(ticks)))
    history.notified(notification(("a", 1), ("b", 1), at_ms=4000), lambda _: 0, 5500)  # 0 s
    history.pulled("a", 1, 0)  # 1 s
    history.signalled("a", 1, 1000, 0)  # 2 s
    history.read("a", 0, 1, 0)  # 3 s
    for _ in range(1000):
        history.acknowledged("a", 0, 1, 0)  # 4 s
    assert counts(registry) == {
        "notified": (2, 3.0),
        "pulled": (1, 1.0),
        "signalled": (1, 1.0),
        "read": (1, 1.0),
        "acknowledged": (1, 1.0),
    }


def test_notification_from_future_counts_as_no_time() -> None:
    registry = CollectorRegistry()
    history = DeliveryHistory(StageHistogram("stages", "Stages.", registry))
    history.notified(notification(("a", 1), at_ms=9000), lambda _: 0, 5000)
    assert counts(registry) == {"notified": (1, 0.0)}


def test_summary_is_known_and_not_observed() -> None:
    registry = CollectorRegistry()
    history = DeliveryHistory(StageHistogram("stages", "Stages.", registry))
    history.notified(notification(("a", 1), at_ms=9000, summary=True), lambda _: 0, 5000)
    history.pulled("a", 1, 5001)
    assert counts(registry) == {}
    assert known(history, 5001, ("a", 1)) == [StreamDelivery("a", 1, 5000, 5001)]


def test_dropped_channel_is_known_and_not_observed() -> None:
    registry = CollectorRegistry()
    history = DeliveryHistory(StageHistogram("stages", "Stages.", registry))
    history.notified(notification(("a", 1), at_ms=5000), lambda _: 0, 5000)
    history.forget_channel("of_kind")
    history.pulled("a", 1, 5001)
    assert counts(registry) == {}
    assert known(history, 5001, ("a", 1)) == [StreamDelivery("a", 1, 5000, 5001)]


def passing(acknowledgements: Iterable[tuple[int, int]], position: int) -> int:
    return sum(before < position <= until for before, until in acknowledgements)


@settings(max_examples=examples(200))
@given(
    steps=st.lists(st.integers(1, 3), min_size=1, max_size=12),
    moves=st.lists(st.lists(st.integers(1, 40), max_size=6), max_size=5),
)
def test_acknowledgements_are_counted_as_by_a_plain_loop(steps: list[int], moves: list[list[int]]) -> None:
    history, heads, head = DeliveryHistory(), list[int](), 0
    for step in steps:
        notify(history, 10, ("a", head + step), head=head)
        head += step
        heads.append(head)
    acknowledgements = []
    for positions in moves:
        before = 0
        for position in sorted({min(one, head) for one in positions}):
            history.acknowledged("a", before, position, 20)
            acknowledgements.append((before, position))
            before = position
    found = known(history, 20, *(("a", one) for one in heads))
    assert [one.acknowledged for one in found] == [passing(acknowledgements, one) for one in heads]
    assert all((one.first_acknowledged_ms is None) == (one.acknowledged == 0) for one in found)
