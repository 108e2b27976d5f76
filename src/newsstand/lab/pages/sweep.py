"""The runs of a replay: policies at capacities and betas, and a summary of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from newsstand.caching import POLICIES
from newsstand.caching.pages.policy import PolicyFile
from newsstand.lab.pages.replay import PolicyRun, ReplayJob, canonical


def plan(
    policies: Sequence[str],
    capacities: Sequence[str],
    betas: Sequence[float],
    policy_files: Sequence[PolicyFile] = (),
    *,
    cache_bytes: Sequence[int] = (),
    per_proxy: bool = False,
    hourly: bool = False,
) -> tuple[list[PolicyRun], ReplayJob]:
    """Return the wanted runs, and the job that replays each distinct one once.

    `capacities` are fractions of the bytes requested at a proxy, `cache_bytes` the bytes of each proxy's cache.
    """
    for file in policy_files:
        file.load()
    sizes: list[str | int] = [*capacities, *cache_bytes]
    wanted = [PolicyRun(policy, size, beta) for policy in policies for size in sizes for beta in betas]
    distinct = tuple(dict.fromkeys(canonical(run) for run in wanted))
    return wanted, ReplayJob(distinct, tuple(policy_files), per_proxy, hourly)


SMALLEST_OF_CURVE = 0.001


def curve_capacities(sizes: int) -> list[str]:
    """Return capacities with equal ratios between them, up to 1."""
    return [f"{SMALLEST_OF_CURVE ** (1 - place / (sizes - 1)):.3g}" for place in range(sizes)]


def summary(answers: Sequence[Mapping[str, object]], capacity: float = 0.05) -> list[str]:
    """Return two or three sentences about the runs at one capacity."""
    here = [answer for answer in answers if answer["capacity"] == capacity]
    hit = {str(answer["policy"]): float(str(answer["hit_ratio"])) for answer in here}
    live = {name: ratio for name, ratio in hit.items() if not POLICIES[name].offline}
    pushing = {name: ratio for name, ratio in live.items() if POLICIES[name].uses_push}
    waiting = {name: ratio for name, ratio in live.items() if name not in pushing}
    sentences = []
    if pushing and waiting:
        best, rest = max(pushing, key=pushing.__getitem__), max(waiting, key=waiting.__getitem__)
        verb = "beats" if pushing[best] > waiting[rest] else "does not beat"
        sentences.append(
            f"Knowing who subscribes {verb} watching who asks: {best} hits {pushing[best]:.1%} of requests, "
            f"the best policy without pushing ({rest}) {waiting[rest]:.1%}."
        )
    if "gdstar" in hit and pushing:
        best = max(pushing, key=pushing.__getitem__)
        traffic = {
            str(a["policy"]): int(str(a["fetched_pages"])) + int(str(a["pushed_pages_needed"])) for a in here
        }
        sentences.append(
            f"It costs {traffic[best] / max(1, traffic['gdstar']):.2f} times the pages that gdstar moves "
            "when pages are pushed only where the cache will store them."
        )
    if "pfoo-l-push" in hit and live:
        best = max(live, key=live.__getitem__)
        sentences.append(
            f"No policy at all could pass {hit['pfoo-l-push']:.1%} at this size; {best} leaves "
            f"{hit['pfoo-l-push'] - live[best]:.1%} on the table."
        )
    return sentences
