from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from newsstand.cluster.results.subscriptions import canonical_texts, subscription_ids
from newsstand.model import Values, canonical, subscription_id

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = (
    TEXTS | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
)


@given(st.lists(st.lists(SCALARS, max_size=3).map(tuple), max_size=5), TEXTS, TEXTS)
def test_batch_of_texts_and_ids_equals_single_ones(many: list[Values], channel: str, broker: str) -> None:
    texts = canonical_texts(many)
    assert texts == [canonical(values) for values in many]
    assert subscription_ids(channel, texts, broker) == [subscription_id(channel, one, broker) for one in many]
