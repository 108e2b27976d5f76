"""Messages on the wire: they round-trip, and malformed ones are rejected."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsstand.errors import BadMessage
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import (
    Advertise,
    CacheRequest,
    CacheResponse,
    Message,
    Publication,
    Publish,
    StorageRequest,
    StorageResponse,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    batch_of,
    decode_batch,
    encode,
)

STORM = Publication("b1", 7, "storms", {"severity": 4, "x": 0.5, "dry": False, "area": "NW"}, b"\0\xff", -5)
SEVERE = Filter.parse("severity>=3 and (area='NW' or topic prefix 's')")

MESSAGES: list[Message] = [
    Subscribe(SEVERE),
    Unsubscribe(SEVERE),
    Publish(STORM, 3),
    Advertise(("storms", "fires"), (("b1", 4), ("b2", 1))),
    Advertise(("storms",), ((1, 1), (2, 7)), ((3, 9),)),
    Unadvertise(("storms",)),
    Unadvertise(("storms",), (("b2", 1),)),
    StorageRequest(9, SEVERE, ("storms",), ("b1",)),
    StorageRequest(9, SEVERE, ("storms",), ("b1",), (5, "b1", 7), 10),
    StorageResponse(9, ("storms",), ("b1",), "more", (STORM, STORM), 2),
    CacheRequest(9, SEVERE, ("b1",)),
    CacheRequest(9, SEVERE, ("b1", "b2"), True, (5, "b1", 7)),
    CacheResponse("b1", 9),
    CacheResponse("b1", 9, (STORM, STORM), False),
    CacheResponse("b1", 9, (STORM,), True, False),
]


def decode(data: bytes) -> Message:
    [message] = decode_batch(batch_of([data]))
    return message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_message_round_trips(message: Message) -> None:
    assert decode(encode(message)) == message
    assert type(decode(encode(message))) is type(message)


def test_messages_are_small() -> None:
    assert len(encode(Subscribe(Filter.of_topic("storms")))) == 28


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (["subscribe", "topic ="], "filter, column 8: expected a value"),
        (["subscribe", 3], "Filter cannot be part of a message"),
        (["shout", 3], "Invalid value 'shout'"),
        ({"type": "subscribe"}, "Expected `array`, got `object`"),
        (["publish", ["b1", 7, ""]], "Expected `str` of length >= 1"),
        (["publish", ["b1", -7, "storms"]], "Expected `int` >= 0"),
        (["publish", ["b1", 7, "storms", {"topic": "x"}]], "'topic' cannot be the name of an attribute"),
        (["publish", ["b1", 7, "storms", {"x": float("nan")}]], "attribute x: nan is not a text, a number"),
        (["publish", ["b1", 7, "storms", {"x": [1]}]], "Expected `bool | int | float | str`, got `array`"),
        (["advertise", [], [["b1", 1]]], "Expected `array` of length >= 1"),
        (["advertise", ["storms"], ["b1"]], "Expected `array`, got `str`"),
        (["advertise", ["storms"], []], "Expected `array` of length >= 1"),
        (["advertise", ["storms"], [["b", 1]] * 65], "Expected `array` of length <= 64"),
        (["response", 1, ["storms"], [], "gone"], "Invalid enum value 'gone'"),
        (["publish", ["b1", 7, "storms", {}, b"", 2**64 - 1]], "Expected `int` <= 9223372036854775807"),
        (["publish", [2**64 - 1, 7, "storms"]], "Expected `int` <= 9223372036854775807"),
        (["request", 1, "true", ["storms"], ["b1"], [2**63, "b1", 7]], "Expected `int` <= 9223372036854775807"),
        (["request", 1, "true", ["storms"], ["b1"], [5, "b1", -7]], "Expected `int` >= 0"),
        (["request", 1], "Expected `array` of at least length 5, got 2"),
        (["cacherequest", 1, "true", []], "Expected `array` of length >= 1"),
        (["cacherequest", 1, "true", ["b1"] * 65], "Expected `array` of length <= 64"),
        (["cacherequest", 1, "true", ["b1"], 3], "Expected `bool`, got `int`"),
        (["cacheresponse", "b1", 9, [["b1", 7, ""]]], "Expected `str` of length >= 1"),
    ],
)
def test_malformed_message_rejected_in_one_line(sent: object, expected: str) -> None:
    with pytest.raises(BadMessage) as refused:
        decode(msgspec.msgpack.encode(sent))
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.binary(max_size=60))
def test_decoder_accepts_or_rejects_any_bytes(data: bytes) -> None:
    try:
        decode(data)
    except BadMessage:
        return


@given(st.sampled_from(MESSAGES), st.integers(0, 200), st.integers(0, 255))
def test_decoder_accepts_or_rejects_a_corrupted_message(message: Message, place: int, byte: int) -> None:
    data = bytearray(encode(message))
    data[place % len(data)] = byte
    try:
        assert encode(decode(bytes(data)))
    except BadMessage:
        return


def test_overlay_broker_imports_neither_numpy_nor_sockets() -> None:
    code = "import newsstand.overlay.simulation, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "networkx", "asyncio", "pyspark"} & set(result.stdout.split())
