"""Routes of brokers: registration, subscriptions, hundreds of thousands in one request, and push-cache leases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from newsstand.cluster.api.context import ClusterContext, record_format
from newsstand.cluster.ingest.validator import RecordFormat
from newsstand.cluster.pages.redirector import KnownCache
from newsstand.cluster.subscriptions import SubscriptionRequest
from newsstand.config.types import require_together
from newsstand.geo.location import Location
from newsstand.http.app import Routes
from newsstand.http.errors import HttpError, bearer, decoded, json_response, require_server_url
from newsstand.http.openapi import JSON, NDJSON, USUAL, After, Limit, page_of
from newsstand.model import BackendSubscription, is_broker_name
from newsstand.wire.cluster import (
    AnnounceResponse,
    BackendSubscriptionInfo,
    BackendSubscriptionList,
    ClusterBroker,
    ClusterBrokerList,
    PushCacheAnnouncement,
    SubscribeRequest,
    SubscribeResponse,
)

MAX_ANNOUNCEMENT_BYTES = 4 * 2**20
LINES = {"type": "string", "description": "one subscription a line, as in the array"}


class RegisterCallback(msgspec.Struct, forbid_unknown_fields=True):
    """The URL of a broker's webhook."""

    callback: str


def broker_routes(context: ClusterContext) -> Routes:
    """Return the routes under `/brokers`."""
    routes = Routes("brokers")
    subscriptions = context.cluster.subscriptions

    @routes.get("/brokers", response=ClusterBrokerList, errors=(403, 422, 503))
    async def list_brokers(request: Request, after: After = "", limit: Limit = USUAL) -> Response:
        """List brokers by name, starting after the name `after`."""
        context.admit(request, ("read", None))
        known = await context.run(subscriptions.brokers)
        found, following = page_of(known, attrgetter("name"), after, limit)
        return json_response(
            ClusterBrokerList([ClusterBroker(one.name, one.callback) for one in found], following)
        )

    @routes.put("/brokers/{broker}", response=ClusterBroker, errors=(403, 503, 507), body=RegisterCallback)
    async def register(request: Request, broker: str) -> Response:
        """Register a broker or change its callback.

        The response that creates a broker contains the secret of its webhook, unless the secret follows from the
        broker's credential.
        """
        context.admit(request, ("broker", broker), claim=True)
        registration = await context.decode(request, RegisterCallback)
        if not is_broker_name(broker):
            raise HttpError(422, "a broker's name is a lower-case letter, then at most 62 of a-z, 0-9, _ and -")
        require_server_url("callback", registration.callback, "http://127.0.0.1:8790/notifications", query=True)
        signing_key = context.tokens.webhook_key(bearer(request))
        made = await context.run(subscriptions.register_broker, broker, registration.callback, signing_key)
        return json_response(ClusterBroker(made.name, made.callback, made.secret or None))

    @routes.get("/brokers/{broker}", response=dict[str, object], errors=(403, 404, 503))
    async def get_broker(request: Request, broker: str) -> Response:
        """Return a broker's pending notifications, and whether it is away."""
        context.admit(request, ("broker", broker), ("read", None))
        return json_response({"name": broker, **await context.run(subscriptions.broker_status, broker)})

    @routes.delete("/brokers/{broker}", response=dict[str, object], errors=(403, 404, 503, 507))
    async def remove_broker(request: Request, broker: str) -> Response:
        """Remove a broker with its subscriptions."""
        context.admit(request, ("broker", broker))
        await context.run(subscriptions.remove_broker, broker)
        return json_response({"dropped": broker})

    return routes


def subscription_routes(context: ClusterContext) -> Routes:
    """Return the routes under `/brokers/{broker}/subscriptions`."""
    routes = Routes("subscriptions")
    subscriptions = context.cluster.subscriptions
    path = "/brokers/{broker}/subscriptions"
    limit_bytes = context.options.max_subscriptions_body_bytes

    @routes.post(
        path,
        response=SubscribeResponse,
        errors=(403, 404, 503, 507),
        body={JSON: list[SubscribeRequest], NDJSON: LINES},
    )
    async def subscribe(request: Request, broker: str) -> Response:
        """Add or update subscriptions, all or none; the ids are in the order of the request."""
        context.admit(request, ("broker", broker))
        format = record_format(request)
        async with context.bodies.read(request, limit_bytes) as body:
            made = await context.run(lambda: subscriptions.subscribe(broker, _read_requests(body, format)))
        return StreamingResponse(_encode_ids(made), media_type="application/json")

    @routes.delete(path, response=dict[str, int], errors=(403, 404, 503, 507), body=list[str])
    async def unsubscribe(request: Request, broker: str) -> Response:
        """Remove subscriptions by their ids, a JSON array; ids that the broker does not have are ignored."""
        context.admit(request, ("broker", broker))
        async with context.bodies.read(request, limit_bytes) as body:
            dropped = await context.run(lambda: subscriptions.unsubscribe(broker, decoded(body, list[str])))
        return json_response({"dropped": dropped})

    @routes.get(path, response=BackendSubscriptionList, errors=(403, 404, 422, 503))
    async def list_subscriptions(
        request: Request, broker: str, after: After = "", limit: Limit = USUAL
    ) -> Response:
        """List a broker's subscriptions by id, starting after the id `after`."""
        context.admit(request, ("broker", broker), ("read", None))
        found = await context.run(subscriptions.of_broker, broker, after, limit)
        listed = [BackendSubscriptionInfo(one.id, one.channel, one.values, one.frontends) for one in found]
        return json_response(BackendSubscriptionList(listed, found[-1].id if len(found) == limit else None))

    return routes


def push_cache_routes(context: ClusterContext) -> Routes:
    """Return the routes under `/brokers/{broker}/push-cache`."""
    routes = Routes("brokers")
    path = "/brokers/{broker}/push-cache"
    origin = context.cluster.origin

    @routes.put(path, response=AnnounceResponse, errors=(403, 404, 503), body=PushCacheAnnouncement)
    async def announce(request: Request, broker: str) -> Response:
        """Announce a broker's push-cache and replace the list of its copies; repeat this within the lease."""
        context.admit(request, ("broker", broker))
        given = await context.decode(request, PushCacheAnnouncement, MAX_ANNOUNCEMENT_BYTES)
        require_server_url("url", given.url, "http://127.0.0.1:8790", query=True)
        require_server_url("push", given.push, "http://127.0.0.1:8790/pushes", query=True)
        if "?" in given.url:
            raise HttpError(422, "url: must not have a query")
        require_together(given, "lat", "lon")
        cache = KnownCache(broker, given.url, given.push, Location(given.lat, given.lon, given.node))
        lease_s = await context.run(origin.announce, cache, given.pages)
        return json_response(AnnounceResponse(origin.pushes_pages, lease_s))

    @routes.delete(path, response=dict[str, object], errors=(403, 404, 503))
    async def withdraw(request: Request, broker: str) -> Response:
        """Withdraw a broker's push-cache: requests are no longer redirected to it."""
        context.admit(request, ("broker", broker))
        await context.run(origin.withdraw, broker)
        return json_response({"dropped": broker})

    return routes


def _read_requests(body: bytes, format: RecordFormat) -> list[SubscriptionRequest]:
    """Return the subscriptions that a body requests; the error of a bad one has its zero-based index."""
    if format == "json":
        listed = decoded(body, list[SubscribeRequest])
    else:
        decoder = msgspec.json.Decoder(SubscribeRequest)
        listed = []
        for line in filter(None, map(bytes.strip, body.split(b"\n"))):
            try:
                listed.append(decoder.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise HttpError(422, f"body: subscription {len(listed)}: {error}") from error
    return [(one.channel, one.values, one.frontends) for one in listed]


def _encode_ids(subscriptions: Sequence[BackendSubscription]) -> Iterator[bytes]:
    """Yield a SubscribeResponse in pieces: there may be hundreds of thousands of ids."""
    yield b'{"ids":['
    for start in range(0, len(subscriptions), 10_000):
        ids = [one.id for one in subscriptions[start : start + 10_000]]
        yield (b"," if start else b"") + msgspec.json.encode(ids)[1:-1]
    yield b"]}"
