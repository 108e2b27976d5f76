"""Routes of administrators: datasets and channels, created, changed and dropped while the cluster runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Protocol, TypeVar

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response

from newsstand.cluster.api_desk import ANY, TOKEN, Desk
from newsstand.cluster.api_shapes import ChannelsShape, DatasetsShape, SuspensionsShape, raw_body
from newsstand.cluster.body import parse_channel
from newsstand.cluster.channels import channel_table
from newsstand.cluster.facade import Facts
from newsstand.cluster.records import dataset_table, parse_dataset
from newsstand.model import Channel, Dataset, Scalar
from newsstand.serving.paging import USUAL, After, Limit, page_of
from newsstand.serving.refusals import BODY, Refused, answer, decoded, problems
from newsstand.values import parse_values

logger = logging.getLogger(__name__)

MOST_DEFINITION_BYTES = 2**20
OnlyNew = Annotated[str | None, Header(alias="If-None-Match", description="`*`: refuse to change what exists")]
Given = dict[str, Scalar] | list[Scalar]
Noun = TypeVar("Noun", Dataset, Channel)


class Put(Protocol[Noun]):
    """How the cluster is told a definition; it answers with the one of before."""

    def __call__(self, made: Noun, /, *, only_new: bool) -> Noun | None: ...


class Trial(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a dry run: values, the publications to take, and, if one likes, another definition."""

    values: list[Given]
    after: Annotated[int, msgspec.Meta(ge=0)] = 0
    until: Annotated[int, msgspec.Meta(ge=0)] | None = None
    channel: dict[str, object] | None = None


TABLE: dict[str, object] = {"type": "object"}
TRIAL: dict[str, object] = {
    "type": "object",
    "required": ["values"],
    "additionalProperties": False,
    "properties": {
        "values": {"type": "array", "items": {"type": ["object", "array"]}},
        "after": {"type": "integer", "minimum": 0},
        "until": {"type": ["integer", "null"], "minimum": 0},
        "channel": {"type": ["object", "null"]},
    },
}


def dataset_facts(dataset: Dataset) -> Facts:
    """A dataset as it is declared, with its name."""
    return {"name": dataset.name, **dataset_table(dataset)}


def channel_facts(channel: Channel) -> Facts:
    """A channel as it is declared, with its name."""
    return {"name": channel.name, **channel_table(channel)}


def dataset_routes(desk: Desk) -> APIRouter:
    """`/datasets`."""
    router = APIRouter(tags=["datasets"])
    cluster = desk.cluster

    @router.get("/datasets", responses={200: {"model": DatasetsShape}, **problems(*TOKEN, 422)})
    async def list_datasets(request: Request, after: After = "", limit: Limit = USUAL) -> Response:
        """Datasets in the order of their names, from the one after `after` on."""
        desk.admit(request, ("read", None), ("publish", ANY))
        known = await desk.ask(desk.looking, cluster.datasets)
        found, following = page_of(known, attrgetter("name"), after, limit)
        return answer({"datasets": [dataset_facts(one) for one in found], "next": following})

    @router.get("/datasets/{dataset}", response_model=Facts, responses=problems(*TOKEN, 404))
    async def get_dataset(request: Request, dataset: str) -> Response:
        """One dataset."""
        desk.admit(request, ("read", None), ("publish", dataset))
        return answer(dataset_facts(await desk.ask(desk.looking, cluster.dataset, dataset)))

    @router.put(
        "/datasets/{dataset}",
        response_model=Facts,
        responses={201: {"description": "It is new."}, **problems(*TOKEN, *BODY, 409, 412, 507)},
        openapi_extra=raw_body(json=TABLE),
    )
    async def put_dataset(request: Request, dataset: str, if_none_match: OnlyNew = None) -> Response:
        """Create a dataset, or add optional fields to one: `{"fields": {"id": "string"}, "key": "id"}`."""
        return await _put(
            desk, request, dataset, if_none_match, lambda table: parse_dataset(dataset, table), cluster.put_dataset
        )

    @router.delete("/datasets/{dataset}", response_model=Facts, responses=problems(*TOKEN, 404, 409, 507))
    async def drop_dataset(request: Request, dataset: str) -> Response:
        """Drop a dataset that no channel reads."""
        return await _drop(desk, request, dataset, cluster.drop_dataset)

    return router


def channel_routes(desk: Desk) -> APIRouter:
    """`/channels`."""
    router = APIRouter(tags=["channels"])
    cluster = desk.cluster

    @router.get("/channels", responses={200: {"model": ChannelsShape}, **problems(*TOKEN, 422)})
    async def list_channels(request: Request, after: After = "", limit: Limit = USUAL) -> Response:
        """Channels in the order of their names, from the one after `after` on, each with its status."""
        desk.admit(request, ("read", None), ("broker", ANY))

        def listed() -> Facts:
            found, following = page_of(cluster.channels(), attrgetter("name"), after, limit)
            facts = [channel_facts(one) | {"status": cluster.channel_status(one.name)} for one in found]
            return {"channels": facts, "next": following}

        return answer(await desk.ask(desk.looking, listed))

    @router.get("/channels/{channel}", response_model=Facts, responses=problems(*TOKEN, 404))
    async def get_channel(request: Request, channel: str) -> Response:
        """One channel with its status: position, lag, last execution, why it fails."""
        desk.admit(request, ("read", None), ("broker", ANY))

        def told() -> Facts:
            return channel_facts(cluster.channel(channel)) | {"status": cluster.channel_status(channel)}

        return answer(await desk.ask(desk.looking, told))

    @router.put(
        "/channels/{channel}",
        response_model=Facts,
        responses={201: {"description": "It is new."}, **problems(*TOKEN, *BODY, 409, 412, 507)},
        openapi_extra=raw_body(json=TABLE),
    )
    async def put_channel(request: Request, channel: str, if_none_match: OnlyNew = None) -> Response:
        """Create a channel, or change its query, period, delivery or retention; Spark checks the query first."""
        return await _put(
            desk,
            request,
            channel,
            if_none_match,
            lambda table: _channel(desk, channel, table),
            cluster.put_channel,
            lambda made: {"warnings": _warnings(desk, made)},
        )

    @router.delete("/channels/{channel}", response_model=Facts, responses=problems(*TOKEN, 404, 507))
    async def drop_channel(request: Request, channel: str) -> Response:
        """Drop a channel with its subscriptions and results."""
        return await _drop(desk, request, channel, cluster.drop_channel)

    @router.get(
        "/channels/{channel}/suspensions",
        responses={200: {"model": SuspensionsShape}, **problems(*TOKEN, 404, 422)},
    )
    async def suspensions(
        request: Request,
        channel: str,
        after: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
        limit: Limit = USUAL,
    ) -> Response:
        """The values that the query fails on, which executions leave out: since when, and why."""
        desk.admit(request, ("read", None))
        known = await desk.ask(desk.looking, cluster.suspensions, channel)
        found, following = page_of(known, _number_of, after, limit)
        return answer({"suspensions": found, "next": following})

    @router.delete(
        "/channels/{channel}/suspensions", response_model=dict[str, int], responses=problems(*TOKEN, 404, 507)
    )
    async def resume(request: Request, channel: str) -> Response:
        """Resume the values that are suspended, from the publications on that are executed next."""
        desk.admit(request, ("admin", None))
        return answer({"resumed": await desk.ask(desk.looking, cluster.resume, channel)})

    @router.get("/channels/{channel}/explain", response_model=Facts, responses=problems(*TOKEN, 404))
    async def explain(request: Request, channel: str) -> Response:
        """What a channel costs and what it shares with others."""
        desk.admit(request, ("read", None))
        return answer(await desk.ask(desk.looking, cluster.explain, channel))

    @router.post(
        "/channels/{channel}/try",
        response_model=Facts,
        responses=problems(*TOKEN, *BODY, 404),
        openapi_extra=raw_body(json=TRIAL),
    )
    async def try_channel(request: Request, channel: str) -> Response:
        """What a channel, as it is or as `channel` defines it, would have made of recorded publications."""
        desk.admit(request, ("admin", None))
        async with desk.body(request, MOST_DEFINITION_BYTES) as body:
            trial = decoded(body, Trial)

        def tried() -> Facts:
            tried_with = trial.channel
            known = cluster.channel(channel) if tried_with is None else _channel(desk, channel, tried_with)
            values = [parse_values(known, given) for given in trial.values]
            return cluster.try_channel(known, values, trial.after, trial.until)

        return answer(await desk.ask(desk.looking, tried))

    return router


def _number_of(suspension: Facts) -> int:
    number = suspension["number"]
    assert isinstance(number, int)
    return number


async def _put(
    desk: Desk,
    request: Request,
    name: str,
    if_none_match: str | None,
    parse: Callable[[Facts], Noun],
    put: Put[Noun],
    more: Callable[[Noun], Facts] = lambda made: {},
) -> Response:
    """Make what the body defines, or change it."""
    desk.admit(request, ("admin", None))
    async with desk.body(request, MOST_DEFINITION_BYTES) as body:
        table = _table(decoded(body, dict[str, object]), name)

    def change() -> tuple[Facts, bool]:
        made = parse(table)
        is_new = put(made, only_new=if_none_match == "*") is None
        return _facts(made) | more(made), is_new

    told, is_new = await desk.ask(desk.looking, change)
    return answer(told, 201 if is_new else 200)


async def _drop(desk: Desk, request: Request, name: str, drop: Callable[[str], object]) -> Response:
    desk.admit(request, ("admin", None))
    await desk.ask(desk.looking, drop, name)
    return answer({"dropped": name})


def _facts(made: Dataset | Channel) -> Facts:
    return dataset_facts(made) if isinstance(made, Dataset) else channel_facts(made)


def _channel(desk: Desk, name: str, table: Facts) -> Channel:
    datasets = {one.name: one for one in desk.cluster.datasets()}
    return parse_channel(name, table, datasets, desk.cluster.catalog.defaults)


def _warnings(desk: Desk, made: Channel) -> list[str]:
    """The warnings about a channel; none if they cannot be found, since the channel is changed already."""
    try:
        return list(desk.cluster.warnings(made))
    except Exception as error:
        line = " ".join(str(error).split())
        logger.warning("channel %s: its warnings cannot be found: %s: %s", made.name, type(error).__name__, line)
        return []


def _table(table: Facts, name: str) -> Facts:
    """A definition as it may be sent: also with its name, status and warnings, as it was told."""
    if table.get("name", name) != name:
        raise Refused(422, f"name: is {table['name']!r} in the body and '{name}' in the path")
    return {key: value for key, value in table.items() if key not in ("name", "status", "warnings")}
