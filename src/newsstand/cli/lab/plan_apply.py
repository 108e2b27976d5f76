"""`newsstand plan --apply`: a plan is given to the coordinator of a running platform, and topics move."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from newsstand.auth.credentials import operator_token
from newsstand.cli.lab.plan import PlanReport, costs_of
from newsstand.config.types import read_secret
from newsstand.errors import BadOption, NewsstandError
from newsstand.http.client import BlockingHttpClient, RequestError
from newsstand.planning.problem import Plan, Problem, evaluate
from newsstand.planning.reassign import replica_moves
from newsstand.wire.coordination import OverlayInfo

Assignment = Mapping[str, Sequence[str]]
"""The brokers that store each topic, by name."""
PAUSE_S = 0.25


class NotApplied(NewsstandError):
    """The coordinator did not apply the plan, or not in time."""


def network_of(overlay: OverlayInfo) -> dict[str, object]:
    """Return brokers and links as a network file has them."""
    number = {name: place for place, name in enumerate(overlay.brokers, 1)}
    edges = [[number[a], number[b]] for a, b in overlay.links]
    return {"nodes": len(overlay.brokers), "edges": edges, "names": overlay.brokers}


def _wanted(overlay: OverlayInfo) -> dict[str, list[str]]:
    return {topic: storages.wanted for topic, storages in overlay.storages.items()}


def _is_settled(overlay: OverlayInfo, topics: Collection[str]) -> bool:
    """Return whether topics are stored where they are wanted, and nowhere else."""
    states = (overlay.storages[topic] for topic in topics if topic in overlay.storages)
    return all(set(state.wanted) <= set(state.complete) and not state.leaving for state in states)


class OperatorClient:
    """The HTTP client of an operator at the coordinator."""

    def __init__(self, coordinator: str, secret_file: Path | None) -> None:
        secret = read_secret(None, secret_file)
        if secret is None:
            raise BadOption("--coordinator: missing secret of the platform; give --secret-file FILE")
        token = operator_token(secret, "plan", ["operator"], now_s=time.time(), days=1)
        self.where = f"--coordinator {coordinator.rstrip('/')}"
        """The name of the platform in errors."""
        self._url = coordinator
        self._headers = {"Authorization": f"Bearer {token}"}

    def overlay(self) -> OverlayInfo:
        """Return the present overlay."""
        return self._request("GET", "/overlay")

    def place(self, before: OverlayInfo, assignment: Assignment) -> OverlayInfo:
        """Assign topics to brokers, others as in `before`; raise NotApplied if the placement has changed since."""
        body = {"assignment": _wanted(before) | dict(assignment)}
        return self._request("PUT", "/overlay/storages", body, {"If-Match": f'"{before.placement}"'})

    def wait(self, topics: Collection[str], limit_s: float) -> tuple[OverlayInfo, float]:
        """Wait until topics have moved or the time is over; return the overlay, and the seconds that passed."""
        begun = time.monotonic()
        while True:
            now, passed = self.overlay(), time.monotonic() - begun
            if _is_settled(now, topics) or not passed <= limit_s:
                return now, passed
            time.sleep(PAUSE_S)

    def _request(
        self, method: str, path: str, body: object = None, conditions: Mapping[str, str] | None = None
    ) -> OverlayInfo:
        try:
            with BlockingHttpClient(self._url, headers=self._headers) as http:
                response = http.request(method, path, json=body, headers=conditions)
        except BadOption as error:
            raise BadOption(f"--coordinator {error}") from None
        except RequestError as error:
            raise NotApplied(f"{self.where}: does not answer ({error.reason})") from error
        if response.status in (401, 403):
            raise BadOption(f"{self.where}: rejects the secret; give that of the platform with --secret-file")
        if response.status == 412:
            raise NotApplied(
                f"{self.where}: the placement of topics has changed while the plan was made, and nothing was "
                "applied; run the command again"
            )
        if not response.is_success:
            raise BadOption(f"{self.where}: answers {response.status}: {response.error_text}")
        try:
            return response.decode(OverlayInfo)
        except RequestError as error:
            raise BadOption(
                f"{self.where}: is not a coordinator of this version ({error.reason}); check the URL"
            ) from error


def apply_plan(
    operator: OperatorClient,
    before: OverlayInfo,
    problem: Problem,
    plan: Plan,
    names: Sequence[str],
    wait_s: float,
) -> dict[str, object]:
    """Apply a plan made for the overlay `before`; return the moves, what they save and whether all are done."""
    stored_before = _wanted(before)
    wanted = {topic: [names[node - 1] for node in nodes] for topic, nodes in plan.assignment.items() if nodes}
    operator.place(before, wanted)
    after, seconds = operator.wait(wanted, wait_s)
    nodes = {name: node for node, name in enumerate(names, 1)}
    stored = {
        topic: tuple(nodes[name] for name in stored_before.get(topic, ()) if name in nodes)
        for topic in problem.topics
    }
    return {
        "before": costs_of(evaluate(problem, Plan((), stored))) if all(stored.values()) else None,
        "after": costs_of(evaluate(problem, plan)),
        "moved": {
            topic: {"to": list(one.added), "from": list(one.removed)}
            for topic, one in replica_moves(stored_before, wanted).items()
        },
        "complete": {topic: after.storages[topic].complete for topic in wanted if topic in after.storages},
        "settled": _is_settled(after, wanted),
        "seconds": round(seconds, 2),
    }


def show_applied(report: PlanReport) -> None:
    """Print the moves of topics, for people."""
    applied = report["applied"]
    for topic, move in applied["moved"].items():
        print(f"{topic}: to {', '.join(move['to']) or 'nobody new'}, from {', '.join(move['from']) or 'nowhere'}")
    before, after = applied["before"], applied["after"]
    was = "some topics were stored nowhere" if before is None else f"{before['traffic']:.4g} requests·hops/s"
    print(f"traffic: {was} before, {after['traffic']:.4g} now; moved in {applied['seconds']:.1f} s")


def require_settled(report: PlanReport, wait_s: float) -> None:
    """Raise NotApplied if topics are still moving."""
    if not report["applied"]["settled"]:
        raise NotApplied(f"topics have not arrived after {wait_s:g} s; they go on moving: see GET /overlay")
