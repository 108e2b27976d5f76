"""How failed logins slow further ones down, with a clock by hand."""

from __future__ import annotations

import itertools

import pytest

from newsstand.broker.attempts import ACCOUNT, ADDRESS, FORGET_S, PAIR, Attempts
from newsstand.errors import Busy


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def attempts(clock: Clock) -> Attempts:
    return Attempts(clock)


def wait_of(attempts: Attempts, account: str, address: str) -> float:
    try:
        attempts.require(account, address)
    except Busy as busy:
        return busy.after_s
    return 0.0


def test_the_first_failures_are_free_and_each_further_one_doubles_the_wait(
    attempts: Attempts, clock: Clock
) -> None:
    waits = []
    for _ in range(PAIR.free + 10):
        clock.now += wait_of(attempts, "ann", "192.0.2.1")
        attempts.failed("ann", "192.0.2.1")
        waits.append(wait_of(attempts, "ann", "192.0.2.1"))
    assert waits == [0.0] * (PAIR.free - 1) + [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0]


def test_who_guesses_does_not_lock_the_owner_out(attempts: Attempts) -> None:
    for _ in range(50):
        attempts.failed("ann", "192.0.2.1")
    assert wait_of(attempts, "ann", "192.0.2.1") > 0
    assert wait_of(attempts, "ann", "198.51.100.7") == 0


def test_guesses_from_many_addresses_are_slowed_down_but_not_for_known_addresses(attempts: Attempts) -> None:
    attempts.succeeded("ann", "198.51.100.7")
    for number in range(ACCOUNT.free + 20):
        attempts.failed("ann", f"192.0.2.{number}")
    assert wait_of(attempts, "ann", "203.0.113.9") == ACCOUNT.most_s
    assert wait_of(attempts, "ann", "198.51.100.7") == 0
    assert wait_of(attempts, "bob", "203.0.113.9") == 0


def test_guesses_at_many_accounts_from_one_address_are_slowed_down(attempts: Attempts) -> None:
    attempts.succeeded("ann", "192.0.2.1")
    for number in range(ADDRESS.free + 20):
        attempts.failed(f"somebody-{number}", "192.0.2.1")
    assert wait_of(attempts, "bob", "192.0.2.1") == ADDRESS.most_s
    assert wait_of(attempts, "ann", "192.0.2.1") == 0, "logged in from there before"
    assert wait_of(attempts, "bob", "198.51.100.7") == 0


def test_a_success_of_one_account_frees_no_others(attempts: Attempts) -> None:
    for number in range(ADDRESS.free):
        attempts.failed(f"somebody-{number}", "192.0.2.1")
    attempts.succeeded("mallory", "192.0.2.1")
    assert wait_of(attempts, "bob", "192.0.2.1") > 0


def test_one_client_has_a_whole_network_of_version_6(attempts: Attempts) -> None:
    for number in range(PAIR.free):
        attempts.failed("ann", f"2001:db8::{number}")
    assert wait_of(attempts, "ann", "2001:db8::ffff") > 0
    assert wait_of(attempts, "ann", "2001:db8:0:1::1") == 0


def test_failures_are_forgotten_after_an_hour(attempts: Attempts, clock: Clock) -> None:
    for _ in range(PAIR.free):
        attempts.failed("ann", "192.0.2.1")
    clock.now += FORGET_S + 1
    attempts.failed("ann", "192.0.2.1")
    assert wait_of(attempts, "ann", "192.0.2.1") == 0


def test_memory_is_bounded(clock: Clock) -> None:
    attempts = Attempts(clock, most_kept=100)
    for number, succeeds in itertools.product(range(1000), (False, True)):
        name, address = f"{number}{'x' * 10_000}", f"192.0.2.{number}"
        attempts.failed(name, address)
        attempts.failed(f"name-{number}", address)
        if succeeds:
            attempts.succeeded(f"name-{number}", address)
    for table in (attempts._pairs, attempts._addresses, attempts._accounts, attempts._good):
        assert len(table) <= 100
        assert all(len(key) < 100 for key in table)
