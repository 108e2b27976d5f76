"""The parts of a broker in the overlay by themselves: its file, its outbox, its lines."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lone_topics import lone_topics, running
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

from newsstand.broker import storage_sqlite
from newsstand.broker.api_topics import _position
from newsstand.broker.overlay_line import LOST_S, PING_S, Line, accepted_frames
from newsstand.broker.settings import BrokerSettings
from newsstand.broker.storage_sqlite import SqliteStorage
from newsstand.broker.topic_ledger import Ledger
from newsstand.broker.topic_outbox import FIRST_S, Outbox
from newsstand.broker.topics import Topics
from newsstand.errors import BadOption, NoRoom
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import (
    Message,
    Publication,
    Publish,
    Request,
    Subscribe,
    decode_batch,
    encode_batch,
)
from newsstand.overlay.storage import MemoryStorage
from newsstand.serving.refusals import Refused

EVERYTHING = Filter.parse("true")
TOPICS = ("fires", "storms")
FILTERS = [EVERYTHING, Filter.parse("severity > 2"), Filter.parse("topic = 'fires' and severity < 3")]


def publication(number: int, topic: str = "storms", at_ms: int = 0, origin: str = "b1") -> Publication:
    return Publication(origin, number, topic, {"severity": number % 5}, b"{}", at_ms)


def with_ledger(path: Path, story: Callable[[Ledger], Awaitable[None]]) -> None:
    async def told() -> None:
        ledger = Ledger(path / "topics.sqlite")
        try:
            await story(ledger)
            await ledger.drained()
        finally:
            ledger.close()

    asyncio.run(told())


# The storage

PUBLICATIONS = st.builds(
    publication,
    st.integers(1, 6),
    st.sampled_from(TOPICS),
    st.integers(0, 3),
    st.sampled_from(["b1", "b2", "ü"]),
)
POSITIONS = st.none() | st.tuples(st.integers(0, 3), st.sampled_from(["b1", "b2", "c"]), st.integers(0, 6))
SEARCHES = st.tuples(st.sampled_from(FILTERS), st.sets(st.sampled_from(TOPICS)), POSITIONS, st.integers(0, 3))
DEEDS = st.one_of(
    st.tuples(st.just("keep"), PUBLICATIONS),
    st.tuples(st.just("forget"), st.sampled_from(TOPICS)),
    st.tuples(st.just("write"), st.none()),
    st.tuples(st.just("find"), SEARCHES),
)


def first_of_each(deeds: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """Publications of one id are the same publication."""
    known: dict[object, Publication] = {}
    return [
        (what, known.setdefault(told.id, told)) if isinstance(told, Publication) else (what, told)
        for what, told in deeds
    ]


@given(st.lists(DEEDS, max_size=30).map(first_of_each))
@settings(max_examples=150, deadline=None)
def test_the_file_keeps_what_memory_keeps_whatever_is_on_its_way_to_disk(deeds: list[tuple[str, object]]) -> None:
    memory = MemoryStorage()

    async def story(ledger: Ledger) -> None:
        storage = SqliteStorage(ledger, most=1000)
        for what, told in deeds:
            match what, told:
                case "keep", Publication() as one:
                    assert storage.keep(one) >= memory.keep(one)
                case "forget", str(topic):
                    storage.forget(topic)
                    memory.forget(topic)
                case "find", (wanted, topics, after, limit):
                    found = await asyncio.to_thread(storage.matching, wanted, topics, after, limit)
                    assert list(found) == list(memory.matching(wanted, topics, after, limit))
                case _:
                    await ledger.written()

    async def again(ledger: Ledger) -> None:
        assert list(SqliteStorage(ledger, 1000).matching(EVERYTHING, TOPICS)) == list(
            memory.matching(EVERYTHING, TOPICS)
        )

    with tempfile.TemporaryDirectory() as folder:
        with_ledger(Path(folder), story)
        with_ledger(Path(folder), again)


def test_the_oldest_of_a_topic_leave_when_it_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_sqlite, "TRIM_EVERY", 10)

    async def story(ledger: Ledger) -> None:
        storage = SqliteStorage(ledger, most=4)
        storage.keep(publication(99, "fires"))
        for number in range(1, 21):
            storage.keep(publication(number, at_ms=number))
        await ledger.written()
        assert [one.number for one in storage.matching(EVERYTHING, ("storms",))] == [17, 18, 19, 20]
        assert len(storage.matching(EVERYTHING, ("fires",))) == 1

    with_ledger(tmp_path, story)


def test_what_cannot_be_written_is_told_and_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("newsstand.broker.topic_ledger.AGAIN_S", 0.01)

    async def story(ledger: Ledger) -> None:
        storage = SqliteStorage(ledger, 1000)
        ledger._writer.execute("PRAGMA query_only = 1")
        storage.keep(publication(1))
        done: list[str] = []
        ledger.then(lambda: done.append("done"))
        with pytest.raises(NoRoom, match="topics cannot be written"):
            await ledger.written()
        assert ledger.fault is not None
        assert done == []
        assert len(storage.matching(EVERYTHING, TOPICS)) == 1
        ledger._writer.execute("PRAGMA query_only = 0")
        await ledger.written()
        assert (ledger.fault, done) == (None, ["done"])
        assert ledger.read("SELECT count(*) FROM publications") == [(1,)]

    with_ledger(tmp_path, story)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "topics.sqlite").write_bytes(b"not a database, and long enough to be looked at" * 50)
    with pytest.raises(BadOption, match=r"topics\.sqlite: cannot be opened as a broker's file of topics"):
        Ledger(tmp_path / "topics.sqlite")


# The outbox


def test_an_outbox_sends_again_until_there_is_a_receipt_also_after_a_restart(tmp_path: Path) -> None:
    async def story(ledger: Ledger) -> None:
        outbox = Outbox(ledger, 0.0)
        for number in (1, 2, 3):
            outbox.add(publication(number, at_ms=1000), 0.0, late=number == 3)
        assert outbox.due(FIRST_S - 0.1, 5000) == []
        assert [one.attempt for one in outbox.due(FIRST_S, 1000)] == [1, 1, 1]
        assert outbox.due(FIRST_S + 1, 1000) == [], "it waits twice as long"
        outbox.received(("b1", 1))
        outbox.received(("b9", 1))
        outbox.hurry(FIRST_S + 1)
        due = outbox.due(FIRST_S + 1, 1500)
        assert [(one.publication.number, one.attempt) for one in due] == [(2, 500), (3, 500)]

    async def again(ledger: Ledger) -> None:
        outbox = Outbox(ledger, 70.0)
        due = outbox.due(70.0, 9000)
        assert [(one.publication, one.late, one.attempt) for one in due] == [
            (publication(2, at_ms=1000), False, 8000),
            (publication(3, at_ms=1000), True, 8000),
        ]

    with_ledger(tmp_path, story)
    with_ledger(tmp_path, again)


# A broker alone


class Ear:
    """A client that keeps what it gets."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def deliver(self, publication: Publication, written: bytes) -> None:
        self.heard.append(publication.body)


def alone(folder: Path, story: Callable[[Topics], Awaitable[None]], *topics: str) -> None:
    """A broker without a coordinator that keeps topics, until a story is over."""

    async def told() -> None:
        made = lone_topics(folder)
        made.take_up()
        made.alone(topics)
        async with running(made):
            async with asyncio.timeout(10):
                while made.whole != sorted(topics) or made._keeping.topics != len(topics):
                    await asyncio.sleep(0.01)
            await story(made)

    asyncio.run(told())


def test_a_broker_without_a_coordinator_keeps_what_its_settings_say(tmp_path: Path) -> None:
    storms = Filter.of_topic("storms")

    async def first(topics: Topics) -> None:
        ear = Ear()
        topics.subscribe(ear, Filter.parse("severity > 1"))
        told = [await topics.publish("storms", {"severity": n}, b"%d" % n) for n in range(4)]
        assert all(one.stored for one in told)
        assert not (await topics.publish("fires", {"severity": 9}, b"9")).stored
        assert ear.heard == [b"2", b"3", b"9"]
        topics.gone(ear)
        await topics.publish("storms", {"severity": 9}, b"4")
        assert ear.heard == [b"2", b"3", b"9"]

    async def second(topics: Topics) -> None:
        page = await topics.past(storms, None, 3)
        assert [one.body for one in page.publications] == [b"0", b"1", b"2"]
        page = await topics.past(storms, page.next, 3)
        assert ([one.body for one in page.publications], page.next) == ([b"3", b"4"], None)
        numbers = [one.number for one in page.publications]
        assert (await topics.publish("storms", {}, b"5")).id[1] > max(numbers), "although the clock stands still"

    async def third(topics: Topics) -> None:
        assert (await topics.past(Filter.parse("true"), None, 9)).publications == []

    alone(tmp_path, first, "storms")
    alone(tmp_path, second, "storms")
    alone(tmp_path, third)
    alone(tmp_path, third, "storms")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"storages": [""]}, "storages: '' cannot be a topic"),
        ({"storages": ["a"], "coordinator": "http://x"}, "storages: is for a broker without a coordinator"),
    ],
)
def test_a_mistake_in_the_settings_is_told(tmp_path: Path, more: dict[str, Any], why: str) -> None:
    with pytest.raises(BadOption, match=why):
        BrokerSettings(name="edge", cluster="http://127.0.0.1:9", data=tmp_path, **more)


# What clients name


@pytest.mark.parametrize(
    "after",
    [
        '[0,"",0]',
        f'[0,"{"b" * 129}",0]',
        "[0,1,0]",
        f'[{2**63},"b1",0]',
        f'[0,"b1",{2**63}]',
        '[0,"b1",-1]',
        "[0]",
        "{",
    ],
)
def test_a_place_that_neighbours_would_refuse_is_not_sent_to_them(after: str) -> None:
    with pytest.raises(Refused, match="after: must be `next` of the page before") as refused:
        _position(after)
    assert refused.value.status == 422


def test_a_place_that_a_page_has_named_is_taken() -> None:
    for place in [(-(2**63), "b", 0), (2**63 - 1, "b" * 128, 2**63 - 1)]:
        taken = _position(msgspec.json.encode(place).decode())
        request = Request(1, EVERYTHING, ("storms",), ("b1",), taken)
        assert taken == place
        assert decode_batch(encode_batch([request])) == [request]


# A line


class Transport(asyncio.Transport):
    """Takes what is written; a reader who never reads if it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: object = None
        self.written = b""
        self.waiting = 0
        self.ended = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.written += data
        self.waiting += len(data)

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None: ...

    def frames(self) -> list[Frame]:
        reader = Protocol(Side.CLIENT, state=State.OPEN)
        reader.receive_data(self.written)
        return [event for event in reader.events_received() if isinstance(event, Frame)]


def with_line(story: Callable[[Line, Transport, list[object]], Awaitable[None]]) -> None:
    async def told() -> None:
        happened: list[object] = []
        transport = Transport()
        received: Callable[[list[Message]], None] = happened.append
        line = Line(accepted_frames(), received, lambda _, why: happened.append(why), most_waiting=10_000)
        line.begin(transport)
        await story(line, transport, happened)

    asyncio.run(told())


def test_messages_go_out_together_and_in_order() -> None:
    async def story(line: Line, transport: Transport, happened: list[object]) -> None:
        messages: list[Message] = [Publish(publication(number)) for number in range(5)]
        for message in messages:
            line.send(message)
        await asyncio.sleep(0)
        [frame] = transport.frames()
        assert decode_batch(bytes(frame.data)) == messages
        wanted = [Subscribe(EVERYTHING)]
        line.data_received(Frame(Opcode.BINARY, encode_batch(wanted)).serialize(mask=True))
        assert happened == [wanted]

    with_line(story)


def test_long_messages_go_out_in_frames_that_a_neighbour_takes() -> None:
    async def story() -> None:
        taken: list[Message] = []
        transport = Transport()
        line = Line(Protocol(Side.CLIENT, state=State.OPEN), taken.extend, lambda _, why: None)
        line.begin(transport)
        messages: list[Message] = [
            Publish(Publication("b1", number, "storms", {}, bytes(40_000))) for number in range(500)
        ]
        for message in messages:
            line.send(message)
        await asyncio.sleep(0)
        ended: list[str] = []
        other = Line(accepted_frames(), taken.extend, lambda _, why: ended.append(why))
        other.begin(Transport())
        other.data_received(transport.written)
        assert (ended, taken == messages) == ([], True)

    asyncio.run(story())


def test_a_neighbour_that_does_not_read_is_let_go() -> None:
    async def story(line: Line, transport: Transport, happened: list[object]) -> None:
        for number in range(3):
            line.send(Publish(Publication("b1", number, "storms", {}, bytes(4000))))
            await asyncio.sleep(0)
        assert transport.frames()[-1].opcode is Opcode.CLOSE
        assert bytes(transport.frames()[-1].data) == b"\x0f\xa2stopped reading"
        assert transport.ended
        line.send(Publish(publication(9)))
        await asyncio.sleep(0)
        line.connection_lost(None)
        assert happened == ["stopped reading"], "it is told once"

    with_line(story)


def test_a_silent_neighbour_is_asked_and_then_let_go() -> None:
    async def story(line: Line, transport: Transport, happened: list[object]) -> None:
        line.tick(0.0)
        line.tick(PING_S - 0.1)
        assert transport.frames() == []
        line.tick(PING_S)
        assert [frame.opcode for frame in transport.frames()] == [Opcode.PING]
        line.data_received(Frame(Opcode.PONG, b"").serialize(mask=True))
        line.tick(PING_S + 1)
        line.tick(LOST_S)
        assert happened == []
        line.tick(PING_S + 1 + LOST_S)
        assert happened == ["nothing was heard for too long"]

    with_line(story)
