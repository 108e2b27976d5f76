from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsstand.signing import BadSignature, Replays, sign, verify


def test_a_signature_is_pinned() -> None:
    """Brokers in other languages must be able to make it: HMAC-SHA256 of `1700000000.7.{}` under `secret`."""
    digest = "2476a3273a22f222704aa93ff3f4078a85cc90a6951a61e23107bff2b33b3d4e"
    assert sign("secret", b"{}", 1_700_000_000, 7) == f"t=1700000000,id=7,v1={digest}"


@given(
    secret=st.text(max_size=9),
    body=st.binary(max_size=99),
    now=st.integers(0, 2**40),
    number=st.integers(0, 2**62),
)
def test_what_was_signed_is_verified(secret: str, body: bytes, now: int, number: int) -> None:
    assert verify(secret, sign(secret, body, now, number), body, now) == number


@pytest.mark.parametrize(
    ("secret", "header", "body"),
    [
        ("other", sign("secret", b"body", 1000, 7), b"body"),
        ("secret", sign("secret", b"body", 1000, 7), b"Body"),
        ("secret", sign("secret", b"body", 1000, 7).replace("id=7", "id=8"), b"body"),
        ("secret", sign("secret", b"body", 1000, 7).replace("t=1000", "t=1001"), b"body"),
        ("secret", sign("secret", b"body", 1000, 7)[:-1], b"body"),
        ("secret", sign("secret", b"body", 1000, 7) + "0", b"body"),
        ("secret", "t=1000,id=٧,v1=" + "0" * 64, b"body"),
        ("secret", "t=1000,id=" + "9" * 5000 + ",v1=" + "0" * 64, b"body"),
        ("secret", "", b"body"),
    ],
)
def test_what_was_changed_is_refused(secret: str, header: str, body: bytes) -> None:
    with pytest.raises(BadSignature, match="Newsstand-Signature"):
        verify(secret, header, body, 1000)


def test_what_is_too_old_or_from_the_future_is_refused() -> None:
    header = sign("secret", b"body", 1000, 7)
    assert verify("secret", header, b"body", 1300) == verify("secret", header, b"body", 700) == 7
    for now in (1301, 699):
        with pytest.raises(BadSignature, match="clocks"):
            verify("secret", header, b"body", now)
    assert verify("secret", header, b"body", 1301, tolerance_s=301) == 7


def test_a_replay_is_one_number_for_each_sender() -> None:
    replays = Replays()
    assert not replays.seen("cluster", 5)
    replays.remember("cluster", 5)
    assert replays.seen("cluster", 5)
    assert replays.seen("cluster", 4)
    assert not replays.seen("cluster", 6)
    assert not replays.seen("other", 4)
    replays.remember("cluster", 3)
    assert replays.seen("cluster", 5)
