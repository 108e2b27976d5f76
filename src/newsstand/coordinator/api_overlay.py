"""Routes of the overlay: the tree of the brokers, and which of them keep which topics."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from newsstand.coordinator.api_shapes import Assignment, OverlayShape, body_of
from newsstand.coordinator.desk import Desk
from newsstand.serving.refusals import BODY, TOKEN, answer, problems

MOST_ASSIGNMENT_BYTES = 2**22


def overlay_routes(desk: Desk) -> APIRouter:
    """`/overlay`."""
    router = APIRouter(tags=["overlay"])
    overlay = desk.coordinator.overlay

    def facts() -> dict[str, object]:
        progress = overlay.progress()
        return {
            "version": overlay.tree.version,
            "links": sorted(overlay.tree.links),
            "brokers": overlay.brokers(),
            "storages": overlay.storages(),
            "settled": progress.total() == progress["settled"],
        }

    @router.get("/overlay", responses={200: {"model": OverlayShape}, **problems(*TOKEN)})
    async def show(request: Request) -> Response:
        """The tree, and each topic with its storages."""
        desk.admit(request, "broker", "operator")
        return answer(await desk.ask(facts))

    @router.put(
        "/overlay/storages",
        responses={200: {"model": OverlayShape}, **problems(*TOKEN, *BODY, 507)},
        openapi_extra=body_of(Assignment),
    )
    async def place(request: Request) -> Response:
        """Say which brokers are to keep which topics; topics move without being lost, and others are dropped."""
        desk.admit(request, "operator")
        told = await desk.read(request, Assignment, MOST_ASSIGNMENT_BYTES)

        def placed() -> dict[str, object]:
            overlay.want(told.assignment)
            return facts()

        return answer(await desk.ask(placed))

    return router
