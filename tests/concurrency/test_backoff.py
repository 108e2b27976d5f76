"""Back-off with full jitter, and log lines of failures that repeat."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsstand.concurrency.pacing import Backoff, LogOnce


def test_waits_are_random_below_a_ceiling_that_doubles() -> None:
    backoff = Backoff(0.5, 5.0, random.Random(7).random)
    waits = [backoff.next_s() for _ in range(8)]
    assert [round(wait, 3) for wait in waits] == [0.162, 0.151, 1.302, 0.29, 2.679, 1.828, 0.29, 2.537]
    for wait, ceiling in zip(waits, [0.5, 1, 2, 4, 5, 5, 5, 5], strict=True):
        assert 0 <= wait <= ceiling


@given(st.floats(0.001, 100), st.floats(0.001, 100), st.integers(0, 10_000), st.floats(0, 1))
def test_wait_is_bounded_by_the_ceiling_and_the_longest_wait(
    first_s: float, longest_s: float, failures: int, jitter: float
) -> None:
    backoff = Backoff(first_s, longest_s, lambda: jitter)
    assert 0 <= backoff.wait_s(failures) <= backoff.ceiling_s(failures) <= longest_s
    assert backoff.ceiling_s(failures) <= backoff.ceiling_s(failures + 1)


def test_reset_begins_with_the_first_ceiling_again() -> None:
    backoff = Backoff(1.0, 60.0, lambda: 1.0)
    assert [backoff.next_s() for _ in range(3)] == [1, 2, 4]
    backoff.reset()
    assert backoff.failures == 0
    assert backoff.next_s() == 1


def test_wait_sleeps_and_counts_a_failure() -> None:
    backoff = Backoff(0.001, 0.001)
    asyncio.run(backoff.wait())
    assert backoff.failures == 1


def test_repeated_failure_is_logged_once_until_it_changes_or_ends(caplog: pytest.LogCaptureFixture) -> None:
    log = LogOnce(logging.getLogger("once"), logging.INFO)
    with caplog.at_level(logging.INFO, "once"):
        for reason in ("refused", "refused", "timeout", "timeout"):
            log.failed("no link to %s: %s", "b", reason)
        log.succeeded()
        log.failed("no link to %s: %s", "b", "timeout")
    assert caplog.messages == ["no link to b: refused", "no link to b: timeout", "no link to b: timeout"]
