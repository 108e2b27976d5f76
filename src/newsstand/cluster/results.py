"""Results: streams, the subscriptions that share them, executions, and what brokers are still to be told.

The contract. A stream is what equal (channel, values) share; its results are numbered 1, 2, 3 … without holes, in
the order of the publications that they come from, with times that never go back. An execution is stored whole,
together with the channel's position in its dataset, in one transaction: a second attempt changes nothing, and a
crash leaves it either stored or not begun. In the same transaction every broker with a subscription to a stream
that moved gets one entry of its outbox. `results_sqlite` is the default; to `results_postgres` the executors write
in parallel. One suite tests both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from newsstand.errors import NewsstandError
from newsstand.model import Broker, Result, Retention, Subscription, Values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MATCHED = "stream bigint, publication bigint, page_id string, page_size bigint, ordinal bigint, payload string"
"""What an execution hands over, one row a result. Within a stream, results are numbered by (publication, ordinal,
payload), publications that are not known (null) last."""


@dataclass(frozen=True)
class Execution:
    """One execution of a channel over the publications after < seq <= through of its new dataset."""

    channel: str
    dataset: str
    after: int
    through: int
    at_ms: int


@dataclass(frozen=True)
class Stored:
    """What storing an execution did."""

    execution: int
    """Its number, the same for every attempt."""
    results: int
    streams: int
    repeated: bool = False
    """Whether an earlier attempt had stored it already."""


@dataclass(frozen=True)
class ExecutionRecord:
    """An execution that was stored, as it is told to whoever asks."""

    number: int
    channel: str
    dataset: str
    after: int
    through: int
    at_ms: int
    results: int
    streams: int


@dataclass(frozen=True)
class Moved:
    """A subscription whose stream moved: the new position, and the first one of this execution."""

    subscription: str
    first: int
    position: int


@dataclass(frozen=True)
class WantedPage:
    """A page that an execution matched for a broker, and for how many of its frontend subscriptions."""

    page: str
    size: int
    subscriptions: int


@dataclass(frozen=True)
class Delivery:
    """One entry of a broker's outbox. `execution` is None for the summary that a broker gets when it returns, and,
    with a `channel`, when streams of the channel were suspended or resumed."""

    id: int
    broker: str
    execution: int | None
    channel: str | None
    at_ms: int
    attempts: int
    told_ms: int | None = None
    """When the broker answered; None if it has not yet."""


@dataclass(frozen=True)
class Suspension:
    """A stream that executions leave out, because an expression of the query fails on its values."""

    stream: int
    values: Values
    error: str
    since_ms: int
    after: int
    """The last publication that it was executed on."""
    subscriptions: int


@dataclass(frozen=True)
class Suspended:
    """A broker's subscription whose stream is suspended."""

    subscription: str
    error: str
    since_ms: int


class Gone(NewsstandError):
    """Retention has removed results that were asked for; `earliest` is the first position that is left."""

    def __init__(self, earliest: int) -> None:
        super().__init__(f"results before {earliest} were removed by retention")
        self.earliest = earliest


@dataclass(frozen=True)
class Standing:
    """Where a stream begins and ends: its earliest result that is left, and its newest; (1, 0) if it has none."""

    stream: int
    earliest: int
    head: int


class Results(ABC):
    """The store. Methods may be called from several threads."""

    # Streams and subscriptions

    def subscribe(self, broker: str, channel: str, wanted: Mapping[Values, int]) -> list[Subscription]:
        """Add or update subscriptions to one channel."""
        return self.subscribe_all(broker, {channel: wanted})

    @abstractmethod
    def subscribe_all(self, broker: str, wanted: Mapping[str, Mapping[Values, int]]) -> list[Subscription]:
        """Add or update subscriptions (channel → values → how many frontends), all or none; hundreds of thousands
        in one call. They come back in the order in which they were given.

        A stream is made when its first subscription comes and kept when its last one goes, so that its numbers are
        never given twice.
        """

    @abstractmethod
    def unsubscribe(self, broker: str, subscriptions: Sequence[str]) -> list[Subscription]:
        """Drop a broker's subscriptions; return those that there were. Others' ids are not touched."""

    @abstractmethod
    def subscription(self, subscription: str) -> Subscription | None:
        """One subscription by its id."""

    @abstractmethod
    def subscriptions(
        self, broker: str | None = None, channel: str | None = None, after: str = "", limit: int | None = None
    ) -> Iterator[Subscription]:
        """Subscriptions in the order of their ids, from the one after `after` on."""

    @abstractmethod
    def active_streams(self, channel: str, among: Sequence[int] | None = None) -> Iterator[tuple[int, Values]]:
        """The streams of a channel that have a subscription and are not suspended (if `among` is given, of these
        only)."""

    @abstractmethod
    def suspend(self, channel: str, stream: int, error: str, definition: str, now_ms: int) -> None:
        """Leave a stream out of executions until it is resumed or has no subscription any more, and have the
        brokers that subscribe to it told; no effect on one that is suspended already."""

    @abstractmethod
    def resume(self, channel: str, now_ms: int, besides: str | None = None) -> list[int]:
        """Resume the suspended streams of a channel, but for those suspended under the definition `besides`;
        have their brokers told, and return the streams."""

    @abstractmethod
    def suspensions(self, channel: str) -> list[Suspension]:
        """The suspended streams of a channel."""

    @abstractmethod
    def suspended(
        self, broker: str, channel: str | None = None, subscriptions: Sequence[str] | None = None
    ) -> list[Suspended]:
        """A broker's subscriptions that are suspended: of one channel, or among some, if these are given."""

    @abstractmethod
    def count_subscriptions(self, channel: str) -> tuple[int, int]:
        """How many subscriptions a channel has, and how many streams they share."""

    # Channels' positions and executions

    @abstractmethod
    def position(self, channel: str) -> int | None:
        """The last publication of its dataset that a channel has been executed on; None if it is not known."""

    @abstractmethod
    def channels(self) -> list[str]:
        """The names of all known channels."""

    @abstractmethod
    def begin(self, channel: str, position: int) -> None:
        """Make a channel known, with its first execution to begin after `position`; no effect on a known one."""

    @abstractmethod
    def forget(self, channel: str) -> None:
        """Drop a channel with its streams, subscriptions, results and executions."""

    @abstractmethod
    def store(self, execution: Execution, matched: DataFrame | None) -> Stored:
        """Store an execution: results, heads of streams, the channel's position, outboxes; exactly once.

        `matched` has the columns of MATCHED; None means no result. If the channel's position is already at or past
        `through`, nothing happens. If it is not at `after`, raise ValueError.
        """

    @abstractmethod
    def executions(
        self, channel: str, after: int = 0, limit: int = 100, publication: int | None = None
    ) -> list[ExecutionRecord]:
        """A channel's stored executions by number; only the one that evaluated `publication` if that is given."""

    @abstractmethod
    def reached(self, execution: int, publication: int) -> list[tuple[int, int]]:
        """The (stream, position) pairs that a publication reached in an execution."""

    # Reading

    @abstractmethod
    def read(self, stream: int, after: int = 0, until: int | None = None, limit: int = 1000) -> list[Result]:
        """Results with after < position <= until, oldest first, at most `limit`; raise Gone if the first one of
        them was removed by retention. `after` past the head gives an empty list."""

    @abstractmethod
    def standings(self, broker: str, subscriptions: Sequence[str]) -> dict[str, Standing]:
        """Where the streams of a broker's subscriptions stand, by id; those it does not have are left out."""

    @abstractmethod
    def head(self, stream: int) -> tuple[int, int]:
        """The positions of the earliest result that a stream has and of its newest; (1, 0) if it has none yet."""

    @abstractmethod
    def retain(self, channel: str, retention: Retention, now_ms: int) -> int:
        """Remove what a channel's retention does not keep, oldest first, and executions that nobody asks for any
        more; return how many results. What is very much goes in several calls, so that each comes to an end."""

    @abstractmethod
    def tidy(self, now_ms: int) -> int:
        """Remove deliveries that were answered more than a day ago; return how many. As with `retain`, what is
        very much goes in several calls."""

    # Brokers and what they are still to be told

    @abstractmethod
    def register(self, broker: Broker) -> None:
        """Add or change a broker."""

    @abstractmethod
    def brokers(self) -> list[Broker]:
        """All brokers by name."""

    @abstractmethod
    def broker(self, name: str) -> Broker | None:
        """One broker by its name."""

    @abstractmethod
    def dismiss(self, broker: str) -> list[Subscription]:
        """Drop a broker with its subscriptions and outbox; return the subscriptions."""

    @abstractmethod
    def due(self, broker: str, limit: int = 1) -> list[Delivery]:
        """The oldest entries of a broker's outbox that it has not answered, in order."""

    @abstractmethod
    def moved(self, delivery: Delivery) -> Iterator[Moved]:
        """The broker's subscriptions that a delivery tells of.

        For a summary (no execution): all of its subscriptions whose streams have results, with their heads.
        """

    @abstractmethod
    def wanted_pages(self, delivery: Delivery) -> Iterator[WantedPage]:
        """The pages that the delivery's execution matched for its broker; none for a summary."""

    @abstractmethod
    def attempted(self, delivery: int) -> None:
        """Count an attempt that was not answered."""

    @abstractmethod
    def told(self, delivery: int, now_ms: int) -> None:
        """The broker answered this entry."""

    @abstractmethod
    def away(self, broker: str) -> bool:
        """Whether a broker is marked away."""

    @abstractmethod
    def mark_away(self, broker: str) -> None:
        """Mark a broker away: its outbox is emptied, and executions add nothing to it until it returns."""

    @abstractmethod
    def mark_back(self, broker: str, now_ms: int) -> None:
        """A broker that was away is back: its outbox has one entry, the summary."""

    @abstractmethod
    def deliveries(self, execution: int) -> list[Delivery]:
        """All deliveries of an execution, answered or not, while they are kept (at least a day)."""

    @abstractmethod
    def check(self) -> None:
        """Raise if the store does not answer: what readiness asks."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""
