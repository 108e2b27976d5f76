"""Delays after failed logins, with the clock of the test."""

from __future__ import annotations

import itertools

import pytest

from newsstand.broker.sessions.accounts import LoginAttempts, LoginLimits
from newsstand.errors import Busy

LIMITS = LoginLimits()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def attempts(clock: Clock) -> LoginAttempts:
    return LoginAttempts(clock)


def wait_of(attempts: LoginAttempts, account: str, address: str) -> float:
    try:
        attempts.require_allowed(account, address)
    except Busy as busy:
        return busy.after_s
    return 0.0


def test_delay_doubles_after_the_free_failures(attempts: LoginAttempts, clock: Clock) -> None:
    waits = []
    for _ in range(LIMITS.pair.free + 10):
        clock.now += wait_of(attempts, "ann", "192.0.2.1")
        attempts.record_failure("ann", "192.0.2.1")
        waits.append(wait_of(attempts, "ann", "192.0.2.1"))
    assert waits == [0.0] * (LIMITS.pair.free - 1) + [
        1.0,
        2.0,
        4.0,
        8.0,
        16.0,
        32.0,
        64.0,
        128.0,
        256.0,
        300.0,
        300.0,
    ]


def test_owner_is_not_locked_out_by_a_guesser(attempts: LoginAttempts) -> None:
    for _ in range(50):
        attempts.record_failure("ann", "192.0.2.1")
    assert wait_of(attempts, "ann", "192.0.2.1") > 0
    assert wait_of(attempts, "ann", "198.51.100.7") == 0


def test_guesses_from_many_addresses_delay_unknown_addresses_only(attempts: LoginAttempts) -> None:
    attempts.record_success("ann", "198.51.100.7")
    for number in range(LIMITS.account.free + 20):
        attempts.record_failure("ann", f"192.0.2.{number}")
    assert wait_of(attempts, "ann", "203.0.113.9") == LIMITS.account.most_s
    assert wait_of(attempts, "ann", "198.51.100.7") == 0
    assert wait_of(attempts, "bob", "203.0.113.9") == 0


def test_guesses_at_many_accounts_delay_their_address(attempts: LoginAttempts) -> None:
    attempts.record_success("ann", "192.0.2.1")
    for number in range(LIMITS.address.free + 20):
        attempts.record_failure(f"somebody-{number}", "192.0.2.1")
    assert wait_of(attempts, "bob", "192.0.2.1") == LIMITS.address.most_s
    assert wait_of(attempts, "ann", "192.0.2.1") == 0, "logged in from there before"
    assert wait_of(attempts, "bob", "198.51.100.7") == 0


def test_success_of_one_account_resets_no_others(attempts: LoginAttempts) -> None:
    for number in range(LIMITS.address.free):
        attempts.record_failure(f"somebody-{number}", "192.0.2.1")
    attempts.record_success("mallory", "192.0.2.1")
    assert wait_of(attempts, "bob", "192.0.2.1") > 0


def test_ipv6_network_counts_as_one_client(attempts: LoginAttempts) -> None:
    for number in range(LIMITS.pair.free):
        attempts.record_failure("ann", f"2001:db8::{number}")
    assert wait_of(attempts, "ann", "2001:db8::ffff") > 0
    assert wait_of(attempts, "ann", "2001:db8:0:1::1") == 0


def test_failures_are_forgotten_after_an_hour(attempts: LoginAttempts, clock: Clock) -> None:
    for _ in range(LIMITS.pair.free):
        attempts.record_failure("ann", "192.0.2.1")
    clock.now += LIMITS.forget_s + 1
    attempts.record_failure("ann", "192.0.2.1")
    assert wait_of(attempts, "ann", "192.0.2.1") == 0


def test_tables_are_bounded(clock: Clock) -> None:
    attempts = LoginAttempts(clock, LoginLimits(capacity=100))
    for number, succeeds in itertools.product(range(1000), (False, True)):
        attempts.record_failure(f"name-{number}", f"192.0.2.{number}")
        if succeeds:
            attempts.record_success(f"name-{number}", f"192.0.2.{number}")
    assert len(attempts) <= 400


def test_long_names_are_not_stored(attempts: LoginAttempts) -> None:
    for number in range(1000):
        attempts.record_failure(f"{number}{'x' * 10_000}", "192.0.2.1")
    assert len(attempts) == 3, "one account, one address, and both"
