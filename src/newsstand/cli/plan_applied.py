"""A plan put into effect: the coordinator of a running platform is told, and topics move."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import httpx
import msgspec

from newsstand.cli.plan_report import Told, costs_of
from newsstand.errors import BadOption, NewsstandError
from newsstand.planning.cost import evaluate
from newsstand.planning.problem import Plan, Problem
from newsstand.planning.reassign import moves
from newsstand.serving.credentials import operator_token
from newsstand.serving.settings import secret_of

Assignment = Mapping[str, Sequence[str]]
"""Which brokers keep each topic, by name."""
PAUSE_S = 0.25


class NotApplied(NewsstandError):
    """The coordinator did not do as the plan says."""


class Kept(msgspec.Struct):
    """Where a topic is to be, where it is, and where it was."""

    wanted: list[str]
    complete: list[str]
    leaving: list[str]


class Overlay(msgspec.Struct):
    """The brokers of a platform, how they are linked, and which of them keep which topics."""

    brokers: list[str]
    links: list[tuple[str, str]]
    storages: dict[str, Kept]

    @property
    def network(self) -> dict[str, object]:
        """Brokers and links as a network file has them."""
        number = {name: place for place, name in enumerate(self.brokers, 1)}
        edges = [[number[a], number[b]] for a, b in self.links]
        return {"nodes": len(self.brokers), "edges": edges, "names": self.brokers}

    def is_settled(self, topics: Collection[str]) -> bool:
        """Whether topics are where they are wanted, and nowhere else."""
        here = (self.storages[topic] for topic in topics if topic in self.storages)
        return all(set(kept.wanted) <= set(kept.complete) and not kept.leaving for kept in here)

    @property
    def wanted(self) -> dict[str, list[str]]:
        """Where each topic is to be."""
        return {topic: kept.wanted for topic, kept in self.storages.items()}


class Operator:
    """Whoever runs the platform, at its coordinator."""

    def __init__(self, coordinator: str, secret_file: Path | None) -> None:
        secret = secret_of(None, secret_file)
        if secret is None:
            raise BadOption("--coordinator: the platform's secret is needed, too: --secret-file FILE")
        self._url = coordinator.rstrip("/")
        token = operator_token(secret, "plan", ["operator"], now_s=time.time(), days=1)
        self._headers = {"Authorization": f"Bearer {token}"}

    @property
    def where(self) -> str:
        """How the platform is named in errors."""
        return f"--coordinator {self._url}"

    def overlay(self) -> Overlay:
        """The overlay as it is now."""
        return self._ask("GET", "/overlay")

    def place(self, assignment: Assignment) -> Overlay:
        """Say which brokers are to keep which topics; those that are not named stay where they are."""
        return self._ask("PUT", "/overlay/storages", {"assignment": self.overlay().wanted | dict(assignment)})

    def wait(self, topics: Collection[str], limit_s: float) -> tuple[Overlay, float]:
        """Wait until topics have moved; what the overlay is then, and after how many seconds."""
        begun = time.monotonic()
        while True:
            now, took = self.overlay(), time.monotonic() - begun
            if now.is_settled(topics) or not took <= limit_s:
                return now, took
            time.sleep(PAUSE_S)

    def _ask(self, method: str, path: str, body: object = None) -> Overlay:
        content = None if body is None else msgspec.json.encode(body)
        try:
            response = httpx.request(method, self._url + path, content=content, headers=self._headers, timeout=30)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotApplied(f"{self.where}: does not answer ({error})") from error
        if response.status_code in (401, 403):
            raise BadOption(f"{self.where}: has another secret than --secret-file")
        if not response.is_success:
            raise BadOption(f"{self.where}: answers {response.status_code}: {_reason(response)}")
        try:
            return msgspec.json.decode(response.content, type=Overlay)
        except msgspec.DecodeError as error:
            raise BadOption(f"{self.where}: is no coordinator of this version ({error})") from error


def _reason(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200]


def applied(
    operator: Operator, problem: Problem, plan: Plan, names: Sequence[str], wait_s: float
) -> dict[str, object]:
    """Put a plan into effect: which topics moved, what that changes, and whether all are where they belong."""
    before = operator.overlay()
    wanted = {topic: [names[node - 1] for node in nodes] for topic, nodes in plan.assignment.items() if nodes}
    operator.place(wanted)
    after, seconds = operator.wait(wanted, wait_s)
    nodes = {name: node for node, name in enumerate(names, 1)}
    kept = {
        topic: tuple(nodes[name] for name in before.wanted.get(topic, ()) if name in nodes)
        for topic in problem.topics
    }
    was_kept = all(kept.values())
    return {
        "before": costs_of(evaluate(problem, Plan((), kept))) if was_kept else None,
        "after": costs_of(evaluate(problem, plan)),
        "moved": {
            topic: {"to": list(one.added), "from": list(one.removed)}
            for topic, one in moves(before.wanted, wanted).items()
        },
        "complete": {topic: after.storages[topic].complete for topic in wanted if topic in after.storages},
        "settled": after.is_settled(wanted),
        "seconds": round(seconds, 2),
    }


def show_applied(told: Told) -> None:
    """Print what became of the platform, for people."""
    done = told["applied"]
    for topic, move in done["moved"].items():
        print(f"{topic}: to {', '.join(move['to']) or 'nobody new'}, from {', '.join(move['from']) or 'nowhere'}")
    before, after = done["before"], done["after"]
    was = "some topics were kept nowhere" if before is None else f"{before['traffic']:.4g} requests·hops/s"
    print(f"traffic: {was} before, {after['traffic']:.4g} now; moved in {done['seconds']:.1f} s")


def require_settled(told: Told, wait_s: float) -> None:
    """Raise NotApplied if topics are still on their way."""
    if not told["applied"]["settled"]:
        raise NotApplied(f"topics have not arrived after {wait_s:g} s; they go on moving: see GET /overlay")
