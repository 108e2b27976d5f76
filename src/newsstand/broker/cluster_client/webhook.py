"""The webhook: the data cluster's signed requests: notifications, questions about them, and pushed pages."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from newsstand.auth.signing import HEADER, BadSignature, Recipient, Replays, SignedHead, verify_head
from newsstand.broker.metrics import Metrics
from newsstand.broker.pages.push_cache import PushCacheService
from newsstand.broker.results.service import ResultService
from newsstand.errors import BadInput
from newsstand.http.app import Routes
from newsstand.http.bodies import Bodies
from newsstand.http.client import raw_path
from newsstand.http.errors import BODY, HttpError, decoded, json_response, unauthorized
from newsstand.model import is_page_path
from newsstand.wire.notifications import (
    DeliveryReport,
    DeliveryRequest,
    PushRequest,
    PushResult,
    read_notification,
)

Sender = Literal["cluster", "origin", "trace"]
"""The part of the data cluster that sends a request: the notifier, push-caching, or the trace of a publication."""
PATHS: Mapping[Sender, str] = {"cluster": "/notifications", "origin": "/pushes", "trace": "/deliveries"}
"""The path of each sender below the broker's callback URL. The notifier and push-caching each number their
requests."""
NOTIFICATION_BODY = 64 * 1024 * 1024
PUSH_BODY = 4 * 1024 * 1024
DELIVERIES_BODY = 256 * 1024


class Webhook:
    """Verifies signed requests under the secret that the cluster gave to this broker; detects repeated ones."""

    def __init__(self, broker: str, callback: str) -> None:
        """Verify requests to the routes below the URL `callback`."""
        self._recipients = {
            sender: Recipient(broker, raw_path(f"{callback.rstrip('/')}{path}")) for sender, path in PATHS.items()
        }
        self._secret: str | None = None
        self._replays = Replays()

    def set_secret(self, secret: str) -> None:
        """Verify requests with this secret from now on."""
        if secret != self._secret:
            self._secret = secret
            self._replays = Replays()  # another cluster, or one that has lost its state

    @property
    def ready(self) -> bool:
        """Whether there is a secret to verify with."""
        return self._secret is not None

    def verify(self, sender: Sender, signature: str, now_s: float) -> SignedHead:
        """Verify the head of a request, before its body is read; raise BadSignature."""
        if self._secret is None:
            raise BadSignature("this broker is not registered at a cluster yet")
        return verify_head(self._secret, self._recipients[sender], signature, now_s)

    def routes(
        self, bodies: Bodies, results: ResultService, push_cache: PushCacheService, metrics: Metrics
    ) -> Routes:
        """Return `/notifications`, `/deliveries` and `/pushes`."""
        routes = Routes("cluster", secured=False)

        @routes.post("/notifications", errors=(401, *BODY))
        async def notifications(request: Request) -> Response:
            """Accept a signed notification of the data cluster."""
            try:
                head = self._verify_head("cluster", request)
                delivery, notification = ("cluster", head.delivery_id), None
                if not self._replays.seen(*delivery):  # the response to a handled one may have been lost
                    async with bodies.read(request, NOTIFICATION_BODY) as body:
                        head.check(body)
                        notification = read_notification(body)
            except BadSignature as error:
                metrics.webhooks.labels("rejected").inc()
                raise _signature_error(error) from None
            if notification is None or self._replays.seen(*delivery):  # the same one may arrive twice at a time
                metrics.webhooks.labels("repeated").inc()
                return Response(status_code=204)
            metrics.webhooks.labels("taken").inc()
            results.on_notification(notification)
            self._replays.remember(*delivery)
            return Response(status_code=204)

        @routes.post("/deliveries", response=DeliveryReport, errors=(401, *BODY))
        async def deliveries(request: Request) -> Response:
            """Return what became of positions of streams, to the data cluster; the request is signed."""
            try:
                head = self._verify_head("trace", request)
                async with bodies.read(request, DELIVERIES_BODY) as body:
                    head.check(body)
                    asked = decoded(body, DeliveryRequest)
            except BadSignature as error:
                raise _signature_error(error) from None
            return json_response(results.deliveries.report(asked.streams, results.now_ms()))

        @routes.post("/pushes", response=PushResult, errors=(401, *BODY))
        async def pushes(request: Request) -> Response:
            """Accept signed pages that the origin pushes; return which are stored, and which were evicted."""
            try:
                head = self._verify_head("origin", request)
                self._require_new("origin", head)
                async with bodies.read(request, PUSH_BODY) as body:
                    head.check(body)
                    self._require_new("origin", head)
                    self._replays.remember("origin", head.delivery_id)
                    pushed = parse_push(body)
            except BadSignature as error:
                raise _signature_error(error) from None
            return json_response(await push_cache.push(pushed.pages))

        return routes

    def _verify_head(self, sender: Sender, request: Request) -> SignedHead:
        head = self.verify(sender, request.headers.get(HEADER, ""), time.time())
        if request.headers.get("content-length", str(head.length)) != str(head.length):
            raise BadSignature(f"header {HEADER}: signed for a body of {head.length} bytes, which this is not")
        return head

    def _require_new(self, sender: Sender, head: SignedHead) -> None:
        if self._replays.seen(sender, head.delivery_id):
            raise BadSignature(f"header {HEADER}: this push, or a later one, was handled already")


def parse_push(body: bytes) -> PushRequest:
    """Return the push in the body of a request; raise BadInput."""
    try:
        pushed = msgspec.json.decode(body, type=PushRequest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"body: {error}") from error
    for number, page in enumerate(pushed.pages):
        if not is_page_path(page.path):
            raise BadInput(f"body: pages.{number}.path: {page.path[:80]!r} is not the path of a page")
    return pushed


def _signature_error(error: BadSignature) -> HttpError:
    """Return the response to a request without a valid signature, whose body is not read."""
    rejected = unauthorized(str(error))
    rejected.headers = {**(rejected.headers or {}), "Connection": "close"}
    return rejected
