"""Routes of administrators: datasets and channels, created, changed and dropped while the cluster runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Header, Request, Response

from newsstand.cluster.api_desk import ANY, Desk, Refused, answer, decoded
from newsstand.cluster.api_shapes import BODY, TOKEN, problems, raw_body
from newsstand.cluster.body import parse_channel
from newsstand.cluster.channels import channel_table, parse_values
from newsstand.cluster.facade import Facts
from newsstand.cluster.records import dataset_table, parse_dataset
from newsstand.model import Channel, Dataset, Scalar

MOST_DEFINITION_BYTES = 2**20
OnlyNew = Annotated[str | None, Header(alias="If-None-Match", description="`*`: refuse to change what exists")]
Given = dict[str, Scalar] | list[Scalar]


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

    @router.get("/datasets", response_model=dict[str, list[Facts]], responses=problems(*TOKEN))
    async def list_datasets(request: Request) -> Response:
        """All datasets."""
        desk.admit(request, ("read", None), ("publish", ANY))
        return answer({"datasets": [dataset_facts(one) for one in await desk.ask(desk.looking, cluster.datasets)]})

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
        desk.admit(request, ("admin", None))
        async with desk.body(request, MOST_DEFINITION_BYTES) as body:
            table = _table(decoded(body, dict[str, object]), dataset)

        def put() -> tuple[bool, Dataset]:
            is_new = _is_new(dataset, cluster.datasets, if_none_match)
            made = parse_dataset(dataset, table)
            cluster.put_dataset(made)
            return is_new, made

        is_new, made = await desk.ask(desk.looking, put)
        return answer(dataset_facts(made), 201 if is_new else 200)

    @router.delete("/datasets/{dataset}", response_model=Facts, responses=problems(*TOKEN, 404, 409, 507))
    async def drop_dataset(request: Request, dataset: str) -> Response:
        """Drop a dataset that no channel reads."""
        desk.admit(request, ("admin", None))
        await desk.ask(desk.looking, cluster.drop_dataset, dataset)
        return answer({"dropped": dataset})

    return router


def channel_routes(desk: Desk) -> APIRouter:
    """`/channels`."""
    router = APIRouter(tags=["channels"])
    cluster = desk.cluster

    @router.get("/channels", response_model=dict[str, list[Facts]], responses=problems(*TOKEN))
    async def list_channels(request: Request) -> Response:
        """All channels, each with its status."""
        desk.admit(request, ("read", None), ("broker", ANY))

        def listed() -> list[Facts]:
            return [
                channel_facts(one) | {"status": cluster.channel_status(one.name)} for one in cluster.channels()
            ]

        return answer({"channels": await desk.ask(desk.looking, listed)})

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
        desk.admit(request, ("admin", None))
        async with desk.body(request, MOST_DEFINITION_BYTES) as body:
            table = _table(decoded(body, dict[str, object]), channel)

        def put() -> tuple[bool, Channel]:
            is_new = _is_new(channel, cluster.channels, if_none_match)
            made = parse_channel(channel, table, _datasets(desk), desk.cluster.catalog.defaults)
            cluster.put_channel(made)
            return is_new, made

        is_new, made = await desk.ask(desk.looking, put)
        return answer(channel_facts(made), 201 if is_new else 200)

    @router.delete("/channels/{channel}", response_model=Facts, responses=problems(*TOKEN, 404, 507))
    async def drop_channel(request: Request, channel: str) -> Response:
        """Drop a channel with its subscriptions and results."""
        desk.admit(request, ("admin", None))
        await desk.ask(desk.looking, cluster.drop_channel, channel)
        return answer({"dropped": channel})

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
            known = (
                cluster.channel(channel)
                if trial.channel is None
                else parse_channel(channel, trial.channel, _datasets(desk), desk.cluster.catalog.defaults)
            )
            values = [parse_values(known, given) for given in trial.values]
            return cluster.try_channel(known, values, trial.after, trial.until)

        return answer(await desk.ask(desk.looking, tried))

    return router


def _datasets(desk: Desk) -> dict[str, Dataset]:
    return {one.name: one for one in desk.cluster.datasets()}


def _table(table: Facts, name: str) -> Facts:
    """A definition as it may be sent: also with its name and status, as it was told."""
    if table.get("name", name) != name:
        raise Refused(422, f"name: is {table['name']!r} in the body and '{name}' in the path")
    return {key: value for key, value in table.items() if key not in ("name", "status")}


def _is_new(name: str, known: Callable[[], Sequence[Dataset | Channel]], if_none_match: str | None) -> bool:
    is_new = all(one.name != name for one in known())
    if not is_new and if_none_match == "*":
        raise Refused(412, f"'{name}' exists already")
    return is_new
