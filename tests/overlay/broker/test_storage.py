"""The contract of every storage."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from newsstand.overlay.broker.broker import OverlayBroker
from newsstand.overlay.broker.effects import Send
from newsstand.overlay.broker.storage import MemoryStorage
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import Publication, StorageRequest, StorageResponse

EVERYTHING = Filter.parse("true")
PUBLICATIONS = st.lists(
    st.builds(
        Publication,
        st.integers(1, 3),
        st.integers(1, 5),
        st.sampled_from(["fires", "storms"]),
        st.fixed_dictionaries({"severity": st.integers(1, 4)}),
        at_ms=st.integers(0, 9),
    ),
    unique_by=lambda one: one.id,
)


@given(PUBLICATIONS, st.randoms(use_true_random=False))
def test_storage_orders_and_deduplicates(publications, random) -> None:
    storage = MemoryStorage()
    for publication in random.sample(publications, len(publications)):
        assert storage.keep(publication)
        assert not storage.keep(publication)
    severe = Filter.parse("severity > 2")
    expected = sorted((one for one in publications if severe.matches(one)), key=lambda one: one.position)
    assert storage.matching(severe, ("fires", "storms")) == expected
    assert storage.matching(severe, ("fires",)) == [one for one in expected if one.topic == "fires"]
    assert len(storage) == len(publications)


@given(PUBLICATIONS, st.integers(1, 4))
def test_storage_read_continues_after_position(publications, limit) -> None:
    storage = MemoryStorage()
    for publication in publications:
        storage.keep(publication)
    read: list[Publication] = []
    while some := storage.matching(EVERYTHING, ("fires", "storms"), read[-1].position if read else None, limit):
        assert len(some) <= limit
        read += some
    assert read == sorted(publications, key=lambda one: one.position)


def test_storage_evicts_oldest_of_a_topic() -> None:
    storage = MemoryStorage(most=2)
    storms = [Publication(1, number, "storms", at_ms=number) for number in range(1, 5)]
    assert [storage.keep(storm) for storm in (storms[1], storms[3], storms[2], storms[0])] == [True] * 3 + [False]
    assert storage.keep(Publication(1, 9, "fires"))
    assert storage.matching(EVERYTHING, ("storms",)) == storms[2:]
    storage.forget("storms")
    assert len(storage) == 1
    assert not MemoryStorage(most=0).keep(storms[0])


def test_response_batch_bounded_in_bytes() -> None:
    broker = OverlayBroker("a", batch=16)
    long = [Publication("a", number, "storms", {}, bytes(200_000)) for number in range(7)]
    broker.link_up("b")
    outs = broker.answer(StorageRequest(9, EVERYTHING, ("storms",), ("b", "a")), long)
    responses = [out.message for out in outs if isinstance(out, Send) and isinstance(out.message, StorageResponse)]
    assert [(len(one.publications), one.state, one.count) for one in responses] == [
        (2, "part", 2),
        (2, "part", 4),
        (2, "part", 6),
        (1, "end", 7),
    ]
