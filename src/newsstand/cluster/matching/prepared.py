"""Executions on few publications, at a cost that does not grow with the number of subscriptions.

Spark analyses the query of a channel once. Later executions replace the publications in the analysed plan, and
whatever else has changed a little. The values of the subscriptions and the stored records are broadcast once, and
again after they have changed much (docs/decisions/0035).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from newsstand.cluster.matching.matcher import SparkMatches, match
from newsstand.cluster.matching.tables import TableParts
from newsstand.cluster.query.parser import Body
from newsstand.cluster.query.rewrite import Broadcast
from newsstand.cluster.results.model import MATCH_SCHEMA
from newsstand.spark.internals import Broadcasts, PlanTemplate, can_reuse_broadcasts, is_adaptive, is_local

Stored = DataFrame | TableParts
"""The stored records of a dataset: all, or the latest per key in parts."""


@dataclass(eq=False)
class PreparedChannel:
    """The prepared plans of one channel; used by one thread at a time."""

    body: Body
    most_values: int = 2_000_000
    """Lists of values that are broadcast at most; for more, each execution reads all of them."""
    most_stored: int = 20_000
    """Stored records that are broadcast at most, since a record that changes causes a new broadcast."""
    _base: _PreparedPlan = field(init=False)
    _changed: _PreparedPlan = field(init=False)

    def __post_init__(self) -> None:
        # Two plans: a join with the union of both tables would be broadcast again after each subscription.
        self._base, self._changed = _PreparedPlan(self.body), _PreparedPlan(self.body)

    def match(
        self,
        new: DataFrame,
        values: TableParts,
        stored: Mapping[str, Stored],
        on_planned: Callable[[], object] = lambda: None,
        most: int | None = None,
    ) -> pa.Table | None:
        """Return the results of an execution, with the columns of `MATCH_SCHEMA`.

        None if it cannot be prepared, or if a plan has more than `most` results, or too many for the driver.
        """
        base = changed = None
        if values.has_changed:
            relations = {"values": values.changed}
            changed = self._changed.frame(new, values.changed, relations, stored, "others", most)
            if changed is None:
                return None
        if values.base_rows:
            base = self._base.frame(new, values.base, {}, stored, self._side(new, values, stored), most)
            if base is None:
                return None
        on_planned()
        found = [MATCH_SCHEMA.empty_table()]
        for frame, stale_keys in ((base, values.stale_keys), (changed, ())):
            if frame is None:
                continue
            matched = SparkMatches(frame).collect()
            if matched is None or (most is not None and matched.num_rows > most):
                return None  # partitions may lack rows
            stale = pa.array(stale_keys, pa.int64())
            found.append(matched.filter(pc.invert(pc.is_in(matched["stream"], stale))))
        return pa.concat_tables(one.cast(MATCH_SCHEMA) for one in found)

    def _side(self, new: DataFrame, values: TableParts, stored: Mapping[str, Stored]) -> Broadcast:
        """Return "others" if the values and the stored records are few enough to stay broadcast, or else "new"."""
        few = (
            values.base_rows <= self.most_values
            and all(is_local(one) for one in stored.values() if isinstance(one, DataFrame))
            and sum(one.base_rows for one in stored.values() if isinstance(one, TableParts)) <= self.most_stored
        )
        return "others" if few and not is_adaptive(new.sparkSession) else "new"

    def clear_broadcasts(self, *, of_base: bool = True) -> None:
        """Release what is broadcast, which may have failed, for all values or for those that have changed."""
        if of_base:
            self._base.broadcasts.clear()
        self._changed.broadcasts.clear()

    def clear(self) -> None:
        """Discard the plans, too, after a failure or the last execution."""
        self._base.clear()
        self._changed.clear()


class _PreparedPlan:
    """The plan of a channel for one table of values."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._inputs: tuple[object, ...] = ()
        """The frames that the plan contains and that do not change."""
        self._template: PlanTemplate | None = None
        self.broadcasts = Broadcasts()

    def frame(
        self,
        new: DataFrame,
        values: DataFrame,
        changing: Mapping[str, DataFrame],
        stored: Mapping[str, Stored],
        side: Broadcast,
        most: int | None,
    ) -> DataFrame | None:
        """Return the results of an execution; None if it cannot be prepared.

        `changing` are relations, beside the publications and the parts of stored tables, that every execution
        replaces: the values, unless they are a table that is cached on Spark.
        """
        relations = {"new": new, **changing}
        inputs: list[object] = [None if changing else values, side]
        for name, one in stored.items():
            if isinstance(one, TableParts):
                relations |= {f"stale {name}": one.stale, f"changed {name}": one.changed}
                inputs.append(one.base)
            else:
                inputs.append(one)
        if not _same(inputs, self._inputs):
            self._inputs, self._template = (), None  # until the plan is made, which may fail
            frames = {name: one.frame() if isinstance(one, TableParts) else one for name, one in stored.items()}
            self._template = self._prepared(relations, values, frames, side)
            self._inputs = tuple(inputs)
        frame = None if self._template is None else self._template.frame(relations)
        return None if frame is None else self.broadcasts.reuse(frame, None if most is None else most + 1)

    def _prepared(
        self,
        relations: Mapping[str, DataFrame],
        values: DataFrame,
        stored: Mapping[str, DataFrame],
        side: Broadcast,
    ) -> PlanTemplate | None:
        if side == "others":
            # Spark may filter local rows before the execution, find that none is left, and leave joins out of this
            # plan that later ones have. It does not look into an RDD.
            spark = relations["new"].sparkSession
            unknown = spark.createDataFrame(spark.sparkContext.emptyRDD(), relations["new"].schema)
            if not can_reuse_broadcasts(match(self._body, unknown, stored, values, side)):
                side = "new"
        return PlanTemplate.of(match(self._body, relations["new"], stored, values, side), relations)

    def clear(self) -> None:
        self._inputs, self._template = (), None
        self.broadcasts.clear()


def _same(inputs: list[object], others: tuple[object, ...]) -> bool:
    return len(inputs) == len(others) and all(one is other for one, other in zip(inputs, others, strict=True))
