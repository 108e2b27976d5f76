"""Routes of brokers: registration and subscriptions, hundreds of thousands in one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from newsstand.cluster.api_desk import TOKEN, Desk, form_of
from newsstand.cluster.api_shapes import BrokerShape, BrokersShape, IdsShape, SubscriptionsShape, raw_body
from newsstand.cluster.facade import Facts, Form, Wanted
from newsstand.model import Broker, Scalar, Subscription, is_broker_name
from newsstand.serving.described import schema_of
from newsstand.serving.paging import USUAL, After, Limit, page_of
from newsstand.serving.refusals import BODY, Refused, answer, bearer, decoded, problems
from newsstand.serving.settings import is_http_url

MOST_BROKER_BYTES = 65_536


class Registration(msgspec.Struct, forbid_unknown_fields=True):
    """Where a broker wants to be notified."""

    callback: str


class AskedSubscription(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A subscription as a broker asks for it."""

    channel: str
    values: dict[str, Scalar] | list[Scalar] = []
    frontends: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 1


def broker_facts(broker: Broker) -> Facts:
    """A broker without its secret."""
    return {"name": broker.name, "callback": broker.callback}


def broker_routes(desk: Desk) -> APIRouter:
    """`/brokers`."""
    router = APIRouter(tags=["brokers"])
    cluster = desk.cluster

    @router.get("/brokers", responses={200: {"model": BrokersShape}, **problems(*TOKEN, 422)})
    async def list_brokers(request: Request, after: After = "", limit: Limit = USUAL) -> Response:
        """Brokers in the order of their names, from the one after `after` on."""
        desk.admit(request, ("read", None))
        known = await desk.ask(desk.looking, cluster.brokers)
        found, following = page_of(known, attrgetter("name"), after, limit)
        return answer({"brokers": [broker_facts(one) for one in found], "next": following})

    @router.put(
        "/brokers/{broker}",
        responses={200: {"model": BrokerShape}, **problems(*TOKEN, *BODY, 507)},
        openapi_extra=raw_body(json=schema_of(Registration)),
    )
    async def register(request: Request, broker: str) -> Response:
        """Register a broker, or tell where it is now.

        The answer that makes it holds its webhooks' secret, unless that follows from the broker's credential.
        """
        desk.admit(request, ("broker", broker), claim=True)
        async with desk.body(request, MOST_BROKER_BYTES) as body:
            registration = decoded(body, Registration)
        if not is_broker_name(broker):
            raise Refused(422, "a broker's name is a lower-case letter, then at most 62 of a-z, 0-9, _ and -")
        require_url("callback", registration.callback, "http://127.0.0.1:8790/notify")
        signing = desk.tokens.webhook_key(bearer(request))
        made = await desk.ask(desk.looking, cluster.register_broker, broker, registration.callback, signing)
        secret = {"secret": made.secret} if made.secret else {}
        return answer(broker_facts(made) | secret)

    @router.get("/brokers/{broker}", response_model=dict[str, object], responses=problems(*TOKEN, 404))
    async def get_broker(request: Request, broker: str) -> Response:
        """What a broker is still to be told, and whether it is away."""
        desk.admit(request, ("broker", broker), ("read", None))
        return answer({"name": broker, **await desk.ask(desk.looking, cluster.broker_status, broker)})

    @router.delete("/brokers/{broker}", response_model=dict[str, object], responses=problems(*TOKEN, 404, 507))
    async def dismiss(request: Request, broker: str) -> Response:
        """Drop a broker with its subscriptions."""
        desk.admit(request, ("broker", broker))
        await desk.ask(desk.looking, cluster.dismiss_broker, broker)
        return answer({"dropped": broker})

    return router


def subscription_routes(desk: Desk) -> APIRouter:
    """`/brokers/{broker}/subscriptions`."""
    router = APIRouter(tags=["subscriptions"])
    cluster = desk.cluster
    path = "/brokers/{broker}/subscriptions"

    asked = schema_of(AskedSubscription)

    @router.post(
        path,
        responses={200: {"model": IdsShape}, **problems(*TOKEN, *BODY, 404, 507)},
        openapi_extra=raw_body(
            json={"type": "array", "items": asked}, ndjson="one subscription a line, as in the array"
        ),
    )
    async def subscribe(request: Request, broker: str) -> Response:
        """Add or update subscriptions, all or none; the ids come in the order of the question."""
        desk.admit(request, ("broker", broker))
        form = form_of(request)
        async with desk.body(request, desk.options.max_subscriptions_body_bytes) as body:

            def subscribed() -> Sequence[Subscription]:
                return cluster.subscribe(broker, _wanted(body, form))

            made = await desk.ask(desk.looking, subscribed)
        return StreamingResponse(_ids(made), media_type="application/json")

    @router.delete(
        path,
        response_model=dict[str, int],
        responses=problems(*TOKEN, *BODY, 404, 507),
        openapi_extra=raw_body(json={"type": "array", "items": {"type": "string"}}),
    )
    async def unsubscribe(request: Request, broker: str) -> Response:
        """Drop subscriptions by their ids, a JSON array; ids that the broker does not have are passed over."""
        desk.admit(request, ("broker", broker))
        async with desk.body(request, desk.options.max_subscriptions_body_bytes) as body:

            def unsubscribed() -> int:
                return cluster.unsubscribe(broker, decoded(body, list[str]))

            return answer({"dropped": await desk.ask(desk.looking, unsubscribed)})

    @router.get(path, responses={200: {"model": SubscriptionsShape}, **problems(*TOKEN, 404, 422)})
    async def list_subscriptions(
        request: Request,
        broker: str,
        after: After = "",
        limit: Limit = USUAL,
    ) -> Response:
        """A broker's subscriptions in the order of their ids, from the one after `after` on."""
        desk.admit(request, ("broker", broker), ("read", None))
        found = await desk.ask(desk.looking, cluster.subscriptions, broker, after, limit)
        listed = [
            {"id": one.id, "channel": one.channel, "values": one.values, "frontends": one.frontends}
            for one in found
        ]
        return answer({"subscriptions": listed, "next": found[-1].id if len(found) == limit else None})

    return router


def _wanted(body: bytes, form: Form) -> list[Wanted]:
    """The subscriptions that a body asks for; the first mistake is told with its place, from 0."""
    if form == "json":
        listed = decoded(body, list[AskedSubscription])
    else:
        decoder = msgspec.json.Decoder(AskedSubscription)
        listed = []
        for line in filter(None, map(bytes.strip, body.split(b"\n"))):
            try:
                listed.append(decoder.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise Refused(422, f"body: subscription {len(listed)}: {error}") from error
    return [(one.channel, one.values, one.frontends) for one in listed]


def _ids(subscriptions: Sequence[Subscription]) -> Iterator[bytes]:
    """Ids as JSON, piece by piece: the answer to hundreds of thousands is not made as a whole."""
    yield b'{"ids":['
    for start in range(0, len(subscriptions), 10_000):
        ids = [one.id for one in subscriptions[start : start + 10_000]]
        yield (b"," if start else b"") + msgspec.json.encode(ids)[1:-1]
    yield b"]}"


def require_url(field: str, url: str, example: str) -> None:
    """Refuse what is no address that signed requests can be sent to."""
    if not is_http_url(url):
        raise Refused(422, f"{field}: must be a URL such as {example}")
    parts = urlsplit(url)
    if parts.username is not None or parts.fragment:
        raise Refused(422, f"{field}: must have neither a user nor a fragment; requests to it are signed")
