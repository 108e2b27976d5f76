"""Routes of brokers: registration, heartbeats, maintenance, and what they tell of their subscribers."""

from __future__ import annotations

from operator import attrgetter
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response

from newsstand.coordinator.api_shapes import (
    CHANGES_BODY,
    AppliedShape,
    BrokerName,
    BrokersShape,
    Epochs,
    Heartbeat,
    LeftShape,
    RegisteredShape,
    Registration,
    StaleShape,
    StateShape,
    ToldShape,
    body_of,
)
from newsstand.coordinator.desk import Desk
from newsstand.coordinator.records import BrokerRecord, Change
from newsstand.coordinator.standing import Report, Standing
from newsstand.planning.places import Place
from newsstand.serving.paging import USUAL, After, Limit, page_of
from newsstand.serving.refusals import BODY, TOKEN, Refused, answer, problems
from newsstand.serving.settings import is_http_url

MOST_BROKER_BYTES = 65_536
MOST_HEARTBEAT_BYTES = 2**23
MOST_CHANGES_BYTES = 2**25


def broker_routes(desk: Desk) -> APIRouter:
    """`/brokers`."""
    router = APIRouter(tags=["brokers"])
    coordinator = desk.coordinator

    @router.get("/brokers", responses={200: {"model": BrokersShape}, **problems(*TOKEN, 422)})
    async def list_brokers(request: Request, after: After = "", limit: Limit = USUAL) -> Response:
        """Brokers in the order of their names, after `after`, with their states, loads and leases."""
        desk.admit(request, "broker", "operator")

        def listed() -> dict[str, object]:
            now = desk.clock()
            found, following = page_of(coordinator.brokers(), attrgetter("name"), after, limit)
            return {"brokers": [_facts(one, coordinator.lease_s, now) for one in found], "next": following}

        return answer(await desk.ask(listed))

    @router.put(
        "/brokers/{name}",
        responses={200: {"model": RegisteredShape}, **problems(*TOKEN, *BODY, 409, 507)},
        openapi_extra=body_of(Registration),
    )
    async def register(request: Request, name: BrokerName) -> Response:
        """Register a broker, or tell where it is now; it learns which subscribers are its own."""
        desk.admit(request, "broker", broker=name)
        told = await desk.read(request, Registration, MOST_BROKER_BYTES)
        require_url(told.url)
        if told.store not in (None, coordinator.identity):
            raise Refused(409, "the broker belongs to a coordinator with another store", reason="store")
        place = place_of(told.lat, told.lon, told.node)
        broker = BrokerRecord(name, told.url, place, told.capacity, instance=told.instance)

        def registered() -> dict[str, object]:
            made = coordinator.register(broker, desk.clock())
            return {**vars(made), "overlay": coordinator.overlay.tell(name)}

        known = {
            "lease_s": coordinator.lease_s,
            "heartbeat_s": coordinator.lease_s / 3,
            "store": coordinator.identity,
            "keys": desk.keys.shared,
        }
        return answer({**known, **await desk.ask(registered)})

    @router.post(
        "/brokers/{name}/heartbeat",
        responses={200: {"model": ToldShape}, **problems(*TOKEN, *BODY, 404, 409, 507)},
        openapi_extra=body_of(Heartbeat),
    )
    async def heartbeat(request: Request, name: BrokerName) -> Response:
        """A broker is alive; it learns who came and who left, again and again until it confirms."""
        desk.admit(request, "broker", broker=name)
        now = desk.clock()
        told = await desk.read(request, Heartbeat, MOST_HEARTBEAT_BYTES)
        report = Report(told.connections, told.subscribers, told.adopted, told.forgot, told.stored)
        to_do = await desk.ask_as(request, name, coordinator.heartbeat, name, report, now)
        return answer({"lease_s": coordinator.lease_s, **vars(to_do)})

    @router.delete(
        "/brokers/{name}", responses={200: {"model": LeftShape}, **problems(*TOKEN, 404, 409, 422, 507)}
    )
    async def leave(request: Request, name: BrokerName) -> Response:
        """A broker goes for good; its subscribers are moved."""
        if desk.admit(request, "broker", "operator", broker=name).role == "operator":
            return answer({"name": name, "moved": await desk.ask(coordinator.leave, name)})
        return answer({"name": name, "moved": await desk.ask_as(request, name, coordinator.leave, name)})

    path = "/brokers/{name}/drain"

    @router.post(path, responses={200: {"model": StateShape}, **problems(*TOKEN, 404, 422, 507)})
    async def drain(request: Request, name: BrokerName) -> Response:
        """Begin maintenance: no new subscribers for this broker, and those it has are moved."""
        desk.admit(request, "broker", "operator", broker=name)
        state, moved = await desk.ask(coordinator.drain, name)
        return answer({"state": state, "moved": moved})

    @router.delete(path, responses={200: {"model": StateShape}, **problems(*TOKEN, 404, 422, 507)})
    async def resume(request: Request, name: BrokerName) -> Response:
        """End maintenance."""
        desk.admit(request, "broker", "operator", broker=name)
        state, moved = await desk.ask(coordinator.resume, name)
        return answer({"state": state, "moved": moved})

    @router.post(
        "/brokers/{name}/changes",
        responses={200: {"model": AppliedShape}, **problems(*TOKEN, *BODY, 404, 409, 507)},
        openapi_extra=CHANGES_BODY,
    )
    async def change(request: Request, name: BrokerName) -> Response:
        """Apply a broker's changes to its subscribers, in order, in one transaction."""
        desk.admit(request, "broker", broker=name)
        changes = await desk.read(request, list[Change], MOST_CHANGES_BYTES)
        return answer(await desk.ask_as(request, name, coordinator.change, name, changes))

    @router.post(
        "/brokers/{name}/stale",
        responses={200: {"model": StaleShape}, **problems(*TOKEN, *BODY, 404, 409)},
        openapi_extra=body_of(Epochs),
    )
    async def stale(request: Request, name: BrokerName) -> Response:
        """Tell a broker which of its records are out of date: those subscribers were at home elsewhere since."""
        desk.admit(request, "broker", broker=name)
        given = await desk.read(request, Epochs, MOST_HEARTBEAT_BYTES)
        return answer({"stale": await desk.ask_as(request, name, coordinator.stale, name, given.epochs)})

    return router


def place_of(lat: float | None, lon: float | None, node: str | None) -> Place:
    """A place out of its parts; the two coordinates come together."""
    if (lat is None) != (lon is None):
        raise Refused(422, "lat and lon: give both or neither")
    return Place(lat, lon, node)


def require_url(url: str) -> None:
    """Refuse what is no address of a broker."""
    if not is_http_url(url):
        raise Refused(422, "url: must be a URL such as http://127.0.0.1:8790")
    parts = urlsplit(url)
    if parts.username is not None or parts.query or parts.fragment:
        raise Refused(422, "url: must have neither a user nor a query nor a fragment")


def _facts(broker: Standing, lease_s: float, now: float) -> dict[str, object]:
    record, place = broker.record, broker.place
    left = 0.0 if broker.state == "dead" else max(0.0, lease_s - (now - broker.heard))
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
        "homes": broker.homes,
        "load": broker.load[0],
        "lease_s": round(left, 3),
    }
