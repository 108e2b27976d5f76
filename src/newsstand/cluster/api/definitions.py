"""Routes of administrators: datasets and channels, created, changed and dropped while the cluster runs."""

from __future__ import annotations

import logging
from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from newsstand.cluster.api.context import ANY, ClusterContext
from newsstand.cluster.ingest.schema import dataset_table, parse_dataset
from newsstand.cluster.query.parser import channel_table, parse_channel
from newsstand.cluster.results.model import SuspendedStreamInfo
from newsstand.cluster.service import RunningExecutionInfo
from newsstand.http.app import Routes
from newsstand.http.errors import HttpError, json_response
from newsstand.http.openapi import JSON, USUAL, After, DeclaredResponse, Header, Limit, page_of
from newsstand.model import ChannelDefinition, Dataset, JsonObject, Scalar, parse_values
from newsstand.wire.cluster import Position

logger = logging.getLogger(__name__)

MAX_DEFINITION_BYTES = 2**20
OnlyNew = Annotated[str | None, Meta(description="`*`: do not change what exists"), Header("If-None-Match")]
CREATED = {201: DeclaredResponse("It is new.", {JSON: JsonObject})}


class DatasetList(msgspec.Struct):
    """Datasets as they are declared, each with its name."""

    datasets: list[JsonObject]
    next: str | None


class DefinitionList(msgspec.Struct):
    """Channels as they are declared, each with its name and its status."""

    channels: list[JsonObject]
    next: str | None


class SuspensionList(msgspec.Struct):
    """Values that executions of a channel leave out, in the order of their numbers."""

    suspensions: list[SuspendedStreamInfo]
    next: int | None


class ExecutionList(msgspec.Struct):
    """Executions that are running, in the order of their channels."""

    executions: list[RunningExecutionInfo]
    next: str | None


class Trial(msgspec.Struct, forbid_unknown_fields=True):
    """A dry run: values, the range of publications, and optionally another definition of the channel."""

    values: list[dict[str, Scalar] | list[Scalar]]
    after: Annotated[int, Meta(ge=0)] = 0
    until: Annotated[int, Meta(ge=0)] | None = None
    channel: JsonObject | None = None


def _facts(made: Dataset | ChannelDefinition) -> JsonObject:
    """Return a dataset or channel as it is declared, with its name."""
    return {"name": made.name, **(dataset_table(made) if isinstance(made, Dataset) else channel_table(made))}


def dataset_routes(context: ClusterContext) -> Routes:
    """Return the routes under `/datasets`."""
    routes = Routes("datasets")
    catalog, definitions = context.cluster.catalog, context.cluster.definitions

    @routes.get("/datasets", response=DatasetList, errors=(403, 422, 503))
    async def list_datasets(request: Request, after: After = "", limit: Limit = USUAL) -> Response:
        """List datasets by name, starting after the name `after`."""
        context.admit(request, ("read", None), ("publish", ANY))
        found, following = page_of(catalog.datasets().values(), attrgetter("name"), after, limit)
        return json_response(DatasetList([_facts(one) for one in found], following))

    @routes.get("/datasets/{dataset}", response=JsonObject, errors=(403, 404, 503))
    async def get_dataset(request: Request, dataset: str) -> Response:
        """Return one dataset."""
        context.admit(request, ("read", None), ("publish", dataset))
        return json_response(_facts(catalog.dataset(dataset)))

    @routes.put(
        "/datasets/{dataset}",
        response=JsonObject,
        answers=CREATED,
        errors=(403, 409, 412, 503, 507),
        body=JsonObject,
    )
    async def put_dataset(request: Request, dataset: str, if_none_match: OnlyNew = None) -> Response:
        """Create a dataset, or add optional fields to one: `{"fields": {"id": "string"}, "key": "id"}`."""
        table = await _read_table(context, request, dataset)

        def change() -> Response:
            made = parse_dataset(dataset, table)
            before = definitions.put_dataset(made, only_new=if_none_match == "*")
            return json_response(_facts(made), 201 if before is None else 200)

        return await context.run(change)

    @routes.delete("/datasets/{dataset}", response=JsonObject, errors=(403, 404, 409, 503, 507))
    async def drop_dataset(request: Request, dataset: str) -> Response:
        """Drop a dataset that no channel reads."""
        context.admit(request, ("admin", None))
        await context.run(definitions.drop_dataset, dataset)
        return json_response({"dropped": dataset})

    return routes


def channel_routes(context: ClusterContext) -> Routes:
    """Return the routes under `/channels`, and that of running executions."""
    routes = Routes("channels")
    catalog, definitions = context.cluster.catalog, context.cluster.definitions

    def with_status(channel: ChannelDefinition) -> JsonObject:
        return _facts(channel) | {"status": definitions.channel_status(channel.name)}

    def parse(name: str, table: JsonObject) -> ChannelDefinition:
        return parse_channel(name, table, catalog.datasets(), catalog.defaults)

    @routes.get("/channels", response=DefinitionList, errors=(403, 422, 503))
    async def list_channels(request: Request, after: After = "", limit: Limit = USUAL) -> Response:
        """List channels by name, starting after the name `after`, each with its status."""
        context.admit(request, ("read", None), ("broker", ANY))

        def list_page() -> Response:
            found, following = page_of(catalog.channels().values(), attrgetter("name"), after, limit)
            return json_response(DefinitionList([with_status(one) for one in found], following))

        return await context.run(list_page)

    @routes.get("/channels/{channel}", response=JsonObject, errors=(403, 404, 503))
    async def get_channel(request: Request, channel: str) -> Response:
        """Return one channel with its status: position, lag, last execution and failure."""
        context.admit(request, ("read", None), ("broker", ANY))
        return json_response(await context.run(lambda: with_status(catalog.channel(channel))))

    @routes.put(
        "/channels/{channel}",
        response=JsonObject,
        answers=CREATED,
        errors=(403, 409, 412, 503, 507),
        body=JsonObject,
    )
    async def put_channel(request: Request, channel: str, if_none_match: OnlyNew = None) -> Response:
        """Create a channel, or change its query, period, delivery or retention; Spark checks the query first."""
        table = await _read_table(context, request, channel)

        def change() -> Response:
            made = parse(channel, table)
            before = definitions.put_channel(made, only_new=if_none_match == "*")
            facts = _facts(made) | {"warnings": _warnings(context, made)}
            return json_response(facts, 201 if before is None else 200)

        return await context.run(change)

    @routes.delete("/channels/{channel}", response=JsonObject, errors=(403, 404, 503, 507))
    async def drop_channel(request: Request, channel: str) -> Response:
        """Drop a channel with its subscriptions and results."""
        context.admit(request, ("admin", None))
        await context.run(definitions.drop_channel, channel)
        return json_response({"dropped": channel})

    @routes.get("/channels/{channel}/suspensions", response=SuspensionList, errors=(403, 404, 422, 503))
    async def suspensions(request: Request, channel: str, after: Position = 0, limit: Limit = USUAL) -> Response:
        """List values on which the query fails and that executions leave out: since when, and why."""
        context.admit(request, ("read", None))
        known = await context.run(definitions.suspensions, channel)
        found, following = page_of(known, attrgetter("stream"), after, limit)
        return json_response(SuspensionList(found, following))

    @routes.delete("/channels/{channel}/suspensions", response=dict[str, int], errors=(403, 404, 503, 507))
    async def resume(request: Request, channel: str) -> Response:
        """Resume the suspended values of a channel, starting with the next publications."""
        context.admit(request, ("admin", None))
        return json_response({"resumed": await context.run(definitions.resume, channel)})

    @routes.get("/executions", response=ExecutionList, errors=(403, 422, 503))
    async def list_executions(request: Request, after: After = "", limit: Limit = USUAL) -> Response:
        """List the executions that are running, by channel, starting after the channel `after`."""
        context.admit(request, ("read", None))
        found, following = page_of(context.cluster.executions(), attrgetter("channel"), after, limit)
        return json_response(ExecutionList(found, following))

    @routes.get("/channels/{channel}/explain", response=JsonObject, errors=(403, 404, 503))
    async def explain(request: Request, channel: str) -> Response:
        """Return what a channel costs and what it shares with others."""
        context.admit(request, ("read", None))
        return json_response(await context.run(definitions.explain, channel))

    @routes.post("/channels/{channel}/try", response=JsonObject, errors=(403, 404, 503), body=Trial)
    async def try_channel(request: Request, channel: str) -> Response:
        """Return the results of a channel, as it is or as `channel` defines it, on recorded publications."""
        context.admit(request, ("admin", None))
        trial = await context.decode(request, Trial, MAX_DEFINITION_BYTES)

        def run_trial() -> JsonObject:
            tried = catalog.channel(channel) if trial.channel is None else parse(channel, trial.channel)
            values = [parse_values(tried, given) for given in trial.values]
            return definitions.try_channel(tried, values, trial.after, trial.until)

        return json_response(await context.run(run_trial))

    return routes


async def _read_table(context: ClusterContext, request: Request, name: str) -> JsonObject:
    """Return the definition in the body of an administrator, without the fields that responses add."""
    context.admit(request, ("admin", None))
    table = await context.decode(request, JsonObject, MAX_DEFINITION_BYTES)
    if table.get("name", name) != name:
        raise HttpError(422, f"name: is {table['name']!r} in the body and '{name}' in the path")
    return {key: value for key, value in table.items() if key not in ("name", "status", "warnings")}


def _warnings(context: ClusterContext, made: ChannelDefinition) -> list[str]:
    """Return the warnings of a channel; none if their evaluation fails, since the channel is changed already."""
    try:
        return list(context.cluster.definitions.warnings(made))
    except Exception as error:
        line = " ".join(str(error).split())
        logger.warning("channel %s: cannot evaluate its warnings: %s: %s", made.name, type(error).__name__, line)
        return []
