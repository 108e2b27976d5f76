from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsstand.auth.signing import BadSignature, Recipient, Replays, sign, verify_head

EDGE = Recipient("edge", "/notifications")
GOOD = sign("secret", EDGE, b"body", 1000, 7)


def test_signature_is_pinned() -> None:
    """Brokers in other languages must be able to make it: HMAC-SHA256 of seven lines under `secret`."""
    digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    code = "2628b69d53b5fcedb15668c068116031fc2a57f59b11291443f099ac0e5747fc"
    expected = f"t=1700000000,id=7,length=2,sha256={digest},v2={code}"
    assert sign("secret", EDGE, b"{}", 1_700_000_000, 7) == expected


def verify(secret: str, recipient: Recipient, header: str, body: bytes, now: float) -> int:
    head = verify_head(secret, recipient, header, now)
    head.check(body)
    return head.delivery_id


@given(
    secret=st.text(max_size=9),
    body=st.binary(max_size=99),
    now=st.integers(0, 2**40),
    number=st.integers(0, 2**62),
)
def test_signed_request_is_verified(secret: str, body: bytes, now: int, number: int) -> None:
    assert verify(secret, EDGE, sign(secret, EDGE, body, now, number), body, now) == number


@pytest.mark.parametrize(
    ("secret", "header", "body"),
    [
        ("other", GOOD, b"body"),
        ("secret", GOOD, b"Body"),
        ("secret", GOOD, b"body and more"),
        ("secret", GOOD.replace("id=7", "id=8"), b"body"),
        ("secret", GOOD.replace("t=1000", "t=1001"), b"body"),
        ("secret", GOOD.replace("length=4", "length=5"), b"body"),
        ("secret", GOOD[:-1], b"body"),
        ("secret", GOOD + "0", b"body"),
        ("secret", GOOD.replace("id=7", "id=٧"), b"body"),
        ("secret", GOOD.replace("id=7", "id=" + "9" * 5000), b"body"),
        ("secret", "", b"body"),
    ],
)
def test_signature_rejected_when_request_changed(secret: str, header: str, body: bytes) -> None:
    with pytest.raises(BadSignature, match="Newsstand-Signature"):
        verify(secret, EDGE, header, body, 1000)


@pytest.mark.parametrize(
    "recipient",
    [
        Recipient("west", "/notifications"),
        Recipient("edge", "/pushes"),
        Recipient("edge", "/notifications", "PUT"),
    ],
)
def test_signature_is_for_one_broker_path_and_method(recipient: Recipient) -> None:
    with pytest.raises(BadSignature, match=f"for broker '{recipient.broker}' and path '{recipient.path}'"):
        verify("secret", recipient, GOOD, b"body", 1000)


def test_head_is_verified_without_body() -> None:
    head = verify_head("secret", EDGE, GOOD, 1000)
    assert (head.delivery_id, head.length) == (7, 4)
    head.check(b"body")
    with pytest.raises(BadSignature, match="not one of this body"):
        head.check(b"Body")


def test_signature_rejected_when_too_old_or_in_future() -> None:
    assert verify("secret", EDGE, GOOD, b"body", 1300) == verify("secret", EDGE, GOOD, b"body", 700) == 7
    for now in (1301, 699):
        with pytest.raises(BadSignature, match="clocks"):
            verify("secret", EDGE, GOOD, b"body", now)
    assert verify_head("secret", EDGE, GOOD, 1301, tolerance_s=301).delivery_id == 7


def test_replay_is_detected_by_number_of_each_sender() -> None:
    replays = Replays()
    assert not replays.seen("cluster", 5)
    replays.remember("cluster", 5)
    assert replays.seen("cluster", 5)
    assert replays.seen("cluster", 4)
    assert not replays.seen("cluster", 6)
    assert not replays.seen("other", 4)
    replays.remember("cluster", 3)
    assert replays.seen("cluster", 5)
