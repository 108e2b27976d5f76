"""Routes of brokers: registration, heartbeats, maintenance, changes to their subscribers, and the overlay."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from newsstand.config.types import require_together
from newsstand.coordinator.api.context import CoordinatorContext
from newsstand.coordinator.model import BrokerRecord
from newsstand.coordinator.registry import BrokerState
from newsstand.geo.location import Location
from newsstand.http.app import Routes
from newsstand.http.errors import HttpError, json_response, require_server_url
from newsstand.http.openapi import USUAL, After, Header, Limit, page_of
from newsstand.wire.coordination import (
    ChangesResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveResponse,
    OverlayInfo,
    RegisterBroker,
    RegisteredBroker,
    StaleRequest,
    StaleResponse,
)
from newsstand.wire.subscribers import Name, SubscriberChange

MOST_BROKER_BYTES = 65_536
MOST_HEARTBEAT_BYTES = 2**23
MOST_CHANGES_BYTES = 2**25

BrokerName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,62}$", examples=["north"])]


class StorageAssignment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The brokers that have to store each topic."""

    assignment: dict[Annotated[str, Meta(min_length=1, max_length=256)], list[Name]]


class BrokerInfo(msgspec.Struct):
    """A broker as the coordinator knows it."""

    name: str
    url: str
    lat: float | None
    lon: float | None
    node: str | None
    capacity: float
    state: Literal["up", "draining", "dead"]
    connections: int
    subscribers: Annotated[int, Meta(description="as its last heartbeat reported")]
    assigned: Annotated[int, Meta(description="subscribers that are assigned to it")]
    load: Annotated[float, Meta(description="connections, and those about to come, as a share of the capacity")]
    lease_s: Annotated[float, Meta(description="how long it may yet be silent; 0 if it is dead")]


class BrokerList(msgspec.Struct):
    """Brokers; `next` is the `after` of the next page, null at the end."""

    brokers: list[BrokerInfo]
    next: str | None


class DrainResponse(msgspec.Struct):
    """The state of a broker after maintenance was switched on or off, and how many subscribers were moved."""

    state: Literal["up", "draining", "dead"]
    moved: int


def broker_routes(context: CoordinatorContext) -> Routes:
    """Return the routes of `/brokers`."""
    routes = Routes("brokers")
    coordinator = context.coordinator

    @routes.get("/brokers", response=BrokerList, errors=(403, 422))
    async def list_brokers(request: Request, after: After = "", limit: Limit = USUAL) -> Response:
        """List brokers in the order of their names, after `after`, with their states, loads and leases."""
        context.admit(request, "broker", "operator")

        def listed() -> dict[str, object]:
            now = context.clock()
            found, following = page_of(coordinator.brokers(), attrgetter("name"), after, limit)
            return {"brokers": [_facts(one, coordinator.lease_s, now) for one in found], "next": following}

        return json_response(await context.run(listed))

    @routes.put("/brokers/{name}", response=RegisteredBroker, errors=(403, 409, 507), body=RegisterBroker)
    async def register(request: Request, name: BrokerName) -> Response:
        """Register a broker or update its address; return its subscribers."""
        context.admit(request, "broker", broker=name)
        given = await context.decode(request, RegisterBroker, MOST_BROKER_BYTES)
        require_server_url("url", given.url, "http://127.0.0.1:8790")
        if given.store not in (None, coordinator.identity):
            raise HttpError(409, "the broker belongs to a coordinator with another store", reason="store")
        place = place_of(given.lat, given.lon, given.node)
        broker = BrokerRecord(name, given.url, place, given.capacity, instance=given.instance)

        registered = await context.run(lambda: coordinator.register(broker, context.clock()))
        registered.keys = context.keys.shared
        return json_response(registered)

    @routes.post(
        "/brokers/{name}/heartbeat", response=HeartbeatResponse, errors=(403, 404, 409, 507), body=HeartbeatRequest
    )
    async def heartbeat(request: Request, name: BrokerName) -> Response:
        """Renew a broker's lease; return subscribers to adopt and to forget, until it confirms them."""
        context.admit(request, "broker", broker=name)
        now = context.clock()
        report = await context.decode(request, HeartbeatRequest, MOST_HEARTBEAT_BYTES)
        duties = await context.run_for_broker(request, name, coordinator.heartbeat, name, report, now)
        return json_response(duties)

    @routes.delete("/brokers/{name}", response=LeaveResponse, errors=(403, 404, 409, 422, 507))
    async def leave(request: Request, name: BrokerName) -> Response:
        """Remove a broker and move its subscribers."""
        if context.admit(request, "broker", "operator", broker=name).role == "operator":
            moved = await context.run(coordinator.leave, name)
        else:
            moved = await context.run_for_broker(request, name, coordinator.leave, name)
        return json_response({"name": name, "moved": moved})

    async def set_draining(request: Request, name: str, draining: bool) -> Response:
        context.admit(request, "broker", "operator", broker=name)
        state, moved = await context.run(coordinator.set_draining, name, draining)
        return json_response({"state": state, "moved": moved})

    path = "/brokers/{name}/drain"

    @routes.post(path, response=DrainResponse, errors=(403, 404, 422, 507))
    async def drain(request: Request, name: BrokerName) -> Response:
        """Begin maintenance: the broker gets no new subscribers, and its subscribers are moved."""
        return await set_draining(request, name, True)

    @routes.delete(path, response=DrainResponse, errors=(403, 404, 422, 507))
    async def resume(request: Request, name: BrokerName) -> Response:
        """End maintenance."""
        return await set_draining(request, name, False)

    @routes.post(
        "/brokers/{name}/changes",
        response=ChangesResponse,
        errors=(403, 404, 409, 507),
        body=list[SubscriberChange],
    )
    async def change(request: Request, name: BrokerName) -> Response:
        """Apply a broker's changes to its subscribers, in order, in one transaction."""
        context.admit(request, "broker", broker=name)
        changes = await context.decode(request, list[SubscriberChange], MOST_CHANGES_BYTES)
        return json_response(await context.run_for_broker(request, name, coordinator.change, name, changes))

    @routes.post("/brokers/{name}/stale", response=StaleResponse, errors=(403, 404, 409), body=StaleRequest)
    async def read_stale(request: Request, name: BrokerName) -> Response:
        """Return the records of a broker that are out of date: other brokers have or had their subscribers."""
        context.admit(request, "broker", broker=name)
        given = await context.decode(request, StaleRequest, MOST_HEARTBEAT_BYTES)
        stale = await context.run_for_broker(request, name, coordinator.stale, name, given.epochs)
        return json_response({"stale": stale})

    return routes


def place_of(lat: float | None, lon: float | None, node: str | None) -> Location:
    """Return a location; raise BadOption if only one coordinate is given."""
    place = Location(lat, lon, node)
    require_together(place, "lat", "lon")
    return place


def _facts(broker: BrokerState, lease_s: float, now: float) -> dict[str, object]:
    record, place = broker.record, broker.place
    left = 0.0 if broker.state == "dead" else max(0.0, lease_s - (now - broker.last_heard))
    return {
        "name": record.name,
        "url": record.url,
        "lat": place.lat,
        "lon": place.lon,
        "node": place.node,
        "capacity": record.capacity,
        "state": broker.state,
        "connections": broker.connections,
        "subscribers": broker.subscribers,
        "assigned": broker.assigned,
        "load": broker.load[0],
        "lease_s": round(left, 3),
    }


MOST_ASSIGNMENT_BYTES = 2**22
PlacementVersion = Annotated[
    str | None, Meta(description="the ETag of `GET /overlay`, or `*` for any"), Header("If-Match")
]


def overlay_routes(context: CoordinatorContext) -> Routes:
    """Return the routes of `/overlay`."""
    routes = Routes("overlay")
    overlay = context.coordinator.overlay

    def facts() -> dict[str, object]:
        progress = overlay.progress()
        return {
            "version": overlay.tree.version,
            "links": sorted(overlay.tree.links),
            "brokers": overlay.brokers(),
            "storages": overlay.storages(),
            "placement": overlay.placement_version,
            "settled": progress.total() == progress["settled"],
        }

    def answer(found: dict[str, object]) -> Response:
        return json_response(found, headers={"ETag": f'"{found["placement"]}"'})

    @routes.get("/overlay", response=OverlayInfo, errors=(403,))
    async def show(request: Request) -> Response:
        """Return the tree, and each topic with its storages."""
        context.admit(request, "broker", "operator")
        return answer(await context.run(facts))

    @routes.put("/overlay/storages", response=OverlayInfo, errors=(403, 412, 428, 507), body=StorageAssignment)
    async def place(request: Request, if_match: PlacementVersion = None) -> Response:
        """Assign topics to brokers; topics move without loss, and topics that are left out are dropped."""
        context.admit(request, "operator")
        if if_match is None:
            raise HttpError(
                428, "If-Match is missing: give the ETag of GET /overlay, or * to replace any placement"
            )
        expected = None if if_match.strip() == "*" else {one.strip().strip('"') for one in if_match.split(",")}
        wanted = await context.decode(request, StorageAssignment, MOST_ASSIGNMENT_BYTES)

        def placed() -> dict[str, object]:
            overlay.place(wanted.assignment, expected)
            return facts()

        return answer(await context.run(placed))

    return routes
