"""The context of all routes: the services of the cluster, the permissions and the instances of brokers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import ParamSpec, TypeVar

import anyio
from starlette.requests import Request

from newsstand.auth.api_tokens import ApiToken, ApiTokens
from newsstand.cluster.app_folder import ClusterSettings
from newsstand.cluster.ingest.validator import RecordFormat
from newsstand.cluster.service import DataCluster
from newsstand.errors import Duplicate
from newsstand.http.app import ApiContext, in_thread
from newsstand.http.errors import HttpError, unknown_token
from newsstand.model import INSTANCE_HEADER, is_earlier_start, is_same_folder

P = ParamSpec("P")
T = TypeVar("T")

INSTANCE_LEASE_S = 10.0
"""How long a process has its name after its last request. Brokers send one every few seconds."""


class AnyName(Enum):
    """For `ClusterContext.admit`: a scope of an action for any name. No text of a request equals it."""

    ANY = "NAME"


ANY = AnyName.ANY

FORMATS: dict[str, RecordFormat] = {
    "application/json": "json",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
}


class BrokerInstances:
    """The processes that act as brokers. Methods may be called from several threads.

    Two processes with one name would share its notifications by chance. A process without an instance is not
    tracked, so that other implementations of a broker can go without.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, lease_s: float = INSTANCE_LEASE_S) -> None:
        self._clock = clock
        self._lease_s = lease_s
        self._known: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def check(self, name: str, instance: str, *, claim: bool) -> None:
        """Renew the name of a process; raise Duplicate if another process has it.

        A later process over the same data folder is the broker started again, and has the name from its first
        request on. With `claim`, a process over another folder takes the name when its lease has ended.
        """
        if not instance:
            return
        with self._lock:
            now = self._clock()
            known, heard = self._known.get(name, (instance, now))
            if not claim or now - heard < self._lease_s:
                if is_earlier_start(instance, known):
                    raise Duplicate(f"broker '{name}' was started again: this process has to stop", self._lease_s)
                if not is_same_folder(known, instance):
                    advice = "give each broker a name of its own" if claim else "this one has to stop"
                    raise Duplicate(f"another process acts as broker '{name}': {advice}", self._lease_s)
            self._known[name] = instance, now


@dataclass(frozen=True, kw_only=True)
class ClusterContext(ApiContext[ApiToken]):
    """The services of the cluster, and who may use them."""

    cluster: DataCluster
    tokens: ApiTokens
    options: ClusterSettings
    instances: BrokerInstances = field(default_factory=BrokerInstances)
    publishers: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(64))
    """Threads of publishers, who do not wait for dry runs and explanations."""
    threads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(16))
    """Threads of all other requests."""
    traces: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(4))
    """Traces at a time: each waits for brokers."""

    def admit(self, request: Request, *needs: tuple[str, str | AnyName | None], claim: bool = False) -> ApiToken:
        """Return the holder of the request's token, if it has a scope for one of the needs: (action, name).

        A process that acts as a broker is rejected if another one does; with `claim` it becomes the broker.
        """
        holder = self.caller(request)
        if holder is None:
            raise unknown_token(request)
        for action, name in needs:
            if holder.is_admin or (
                holder.has_any(action) if isinstance(name, AnyName) else holder.may(action, name)
            ):
                if action == "broker" and isinstance(name, str):
                    instance = request.headers.get(INSTANCE_HEADER, "")
                    self.instances.check(name, instance, claim=claim)
                return holder
        named = ((action, name.value if isinstance(name, AnyName) else name) for action, name in needs)
        scopes = " or ".join(action if name is None else f"{action}:{name}" for action, name in named)
        raise HttpError(403, f"the token '{holder.name}' lacks the scope {scopes}")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the cluster, which blocks, in a thread."""
        return await in_thread(self.threads, function, *args, **kwargs)

    async def run_publish(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the cluster for a publisher."""
        return await in_thread(self.publishers, function, *args, **kwargs)


def record_format(request: Request) -> RecordFormat:
    """Return the format of the records in a body, by its Content-Type."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    found = FORMATS.get(content_type)
    if found is None:
        raise HttpError(
            415, f"Content-Type '{content_type}' is not supported: send application/json or application/x-ndjson"
        )
    return found
