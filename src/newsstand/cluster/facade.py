"""What the HTTP API asks of the cluster behind it, and nothing else.

All methods block and may be called from several threads. They raise the errors of `newsstand.errors`, `Conflict`
and `Exists` of `catalog` and `Gone` of `results`; the API turns each into its status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from newsstand.model import Broker, Channel, Dataset, Result, Scalar, Subscription, Values

if TYPE_CHECKING:
    from newsstand.cluster.catalog import Catalog
    from newsstand.cluster.metrics import Metrics
    from newsstand.cluster.origin import Origin
    from newsstand.cluster.pages import StoredPage
    from newsstand.cluster.reading import Asked, Slice
    from newsstand.cluster.records import Refusal

Form = Literal["json", "ndjson"]
Given = Mapping[str, Scalar] | Sequence[Scalar]
"""The values of a subscription as they are given: by name, or in the order of the parameters."""
Wanted = tuple[str, Given, int]
"""A subscription as it is asked for: channel, values, how many frontends stand behind it."""
Facts = dict[str, object]
"""An answer for people and dashboards, ready for JSON."""


@dataclass(frozen=True)
class Receipt:
    """What became of the records of one publish call; accepted ones are numbered `first` to `last`."""

    accepted: int
    first: int | None
    last: int | None
    refused: Sequence[Refusal] = ()
    repeated: bool = False
    """Whether the idempotency key was seen before, so that nothing was added now."""


class Cluster(Protocol):
    """The data cluster, seen from its HTTP API."""

    @property
    def metrics(self) -> Metrics: ...
    @property
    def catalog(self) -> Catalog: ...
    @property
    def origin(self) -> Origin: ...

    def publish(
        self, dataset: str, body: bytes, form: Form, key: str | None, publisher: str | None = None
    ) -> Receipt:
        """Add records; they are durable when this returns. An idempotency key belongs to its publisher."""

    def datasets(self) -> Sequence[Dataset]: ...
    def dataset(self, name: str) -> Dataset: ...
    def put_dataset(self, dataset: Dataset, *, only_new: bool = False) -> Dataset | None:
        """Add a dataset, or change one, and return what it was; raise `Exists` if it is not new and must be."""

    def drop_dataset(self, name: str) -> object: ...
    def channels(self) -> Sequence[Channel]: ...
    def channel(self, name: str) -> Channel: ...
    def put_channel(self, channel: Channel, *, only_new: bool = False) -> Channel | None:
        """Likewise a channel, if Spark can analyse its query."""

    def warnings(self, channel: Channel) -> Sequence[str]:
        """The parameters of a channel that have values on which its query fails."""

    def drop_channel(self, name: str) -> object: ...

    def channel_status(self, name: str) -> Facts:
        """Position, lag, last execution, failing error, subscriptions, streams."""

    def suspensions(self, name: str) -> Sequence[Facts]:
        """The streams that executions of a channel leave out, and why."""

    def resume(self, name: str) -> int:
        """Execute the suspended streams of a channel again; say how many there were."""

    def explain(self, name: str) -> Facts:
        """What a channel costs and what it shares with others."""

    def try_channel(self, channel: Channel, values: Sequence[Values], after: int, until: int | None) -> Facts:
        """What a channel would have produced for these values over recorded publications."""

    def register_broker(self, name: str, callback: str, signing: str | None = None) -> Broker:
        """Add a broker or change its callback; its secret is empty if it is not to be told again."""

    def dismiss_broker(self, name: str) -> object: ...
    def brokers(self) -> Sequence[Broker]: ...
    def broker_status(self, name: str) -> Facts: ...

    def subscribe(self, broker: str, wanted: Sequence[Wanted]) -> Sequence[Subscription]:
        """Add or update subscriptions, all or none; the answer is in the order of the question."""

    def unsubscribe(self, broker: str, ids: Sequence[str]) -> int:
        """Drop a broker's subscriptions; return how many there were."""

    def subscription(self, subscription: str) -> Subscription: ...
    def subscriptions(self, broker: str, after: str, limit: int) -> Sequence[Subscription]: ...

    def results(self, subscription: str, after: int, until: int | None, limit: int) -> Sequence[Result]:
        """Results with after < position <= until, oldest first, at most `limit`."""

    def extent(self, subscription: str) -> tuple[int, int]:
        """The positions of the earliest result that is left and of the newest; (1, 0) if there is none yet."""

    def read_all(self, broker: str, asked: Sequence[Asked]) -> Sequence[Slice]:
        """The next results of many of a broker's subscriptions; those it does not have are left out."""

    def trace(self, dataset: str, seq: int) -> Facts:
        """What became of one publication: when accepted, in which executions evaluated, whom it reached."""

    def page(self, page: str) -> StoredPage: ...

    def degraded(self) -> Sequence[str]:
        """Which channels fail, are slow or are far behind, for anybody to know; only asked for if all is ready."""

    def ready(self) -> Sequence[str]:
        """Which parts are not ready, for anybody to know; empty if all are."""
