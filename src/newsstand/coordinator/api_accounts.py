"""Routes of operators about accounts: list, show, disable, enable, reset the password."""

from __future__ import annotations

from typing import Annotated

import anyio.to_thread
import msgspec
from fastapi import APIRouter, Query, Request, Response

from newsstand.coordinator.api_shapes import AccountShape, AccountsShape, body_of
from newsstand.coordinator.desk import Desk
from newsstand.serving.passwords import check_password, password_hasher
from newsstand.serving.refusals import BODY, TOKEN, answer, problems

MOST_PASSWORD_BYTES = 65_536
MOST_LISTED = 1000


class NewPassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another password."""

    password: str


def account_routes(desk: Desk) -> APIRouter:
    """`/subscribers`, as operators see it."""
    router = APIRouter(tags=["accounts"])
    coordinator = desk.coordinator

    @router.get("/subscribers", responses={200: {"model": AccountsShape}, **problems(*TOKEN, 422)})
    async def accounts(
        request: Request,
        after: Annotated[str, Query(max_length=64)] = "",
        limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100,
    ) -> Response:
        """Accounts in the order of their names, from the one after `after` on."""
        desk.admit(request, "operator")
        found = await desk.ask(coordinator.accounts, after, limit)
        return answer({"subscribers": found, "next": found[-1].name if len(found) == limit else None})

    path = "/subscribers/{name}"

    @router.get(path, responses={200: {"model": AccountShape}, **problems(*TOKEN, 404)})
    async def account(request: Request, name: str) -> Response:
        """One account."""
        desk.admit(request, "operator")
        return answer(await desk.ask(coordinator.account, name))

    @router.put(f"{path}/disabled", responses={200: {"model": AccountShape}, **problems(*TOKEN, 404, 507)})
    async def disable(request: Request, name: str) -> Response:
        """Disable an account: it gets no tokens and no answers, and keeps its subscriptions."""
        desk.admit(request, "operator")
        return answer(await desk.ask(coordinator.set_disabled, name, True))

    @router.delete(f"{path}/disabled", responses={200: {"model": AccountShape}, **problems(*TOKEN, 404, 507)})
    async def enable(request: Request, name: str) -> Response:
        """Enable an account that was disabled."""
        desk.admit(request, "operator")
        return answer(await desk.ask(coordinator.set_disabled, name, False))

    @router.put(
        f"{path}/password",
        status_code=204,
        response_class=Response,
        responses=problems(*TOKEN, *BODY, 404, 507),
        openapi_extra=body_of(NewPassword),
    )
    async def reset(request: Request, name: str) -> Response:
        """Give a subscriber another password; all its sessions end."""
        desk.admit(request, "operator")
        given = await desk.read(request, NewPassword, MOST_PASSWORD_BYTES)
        check_password(given.password)
        await desk.ask(coordinator.account, name)
        hashed = await anyio.to_thread.run_sync(password_hasher().hash, given.password, limiter=desk.hashing)
        await desk.ask(coordinator.reset_password, name, hashed)
        return Response(status_code=204)

    return router
