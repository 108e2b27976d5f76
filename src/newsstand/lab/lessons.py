"""What a comparison of policies teaches, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from newsstand.caching import POLICIES


def lessons(answers: Sequence[Mapping[str, object]], capacity: float = 0.05) -> list[str]:
    """Two or three sentences about the runs at one capacity, each drawn from the numbers."""
    here = [answer for answer in answers if answer["capacity"] == capacity]
    hit = {str(answer["policy"]): float(str(answer["hit_ratio"])) for answer in here}
    live = {name: ratio for name, ratio in hit.items() if not POLICIES[name].offline}
    pushing = {name: ratio for name, ratio in live.items() if POLICIES[name].uses_push}
    waiting = {name: ratio for name, ratio in live.items() if name not in pushing}
    told = []
    if pushing and waiting:
        best, rest = max(pushing, key=pushing.__getitem__), max(waiting, key=waiting.__getitem__)
        verb = "beats" if pushing[best] > waiting[rest] else "does not beat"
        told.append(
            f"Knowing who subscribes {verb} watching who asks: {best} hits {pushing[best]:.1%} of requests, "
            f"the best policy without pushing ({rest}) {waiting[rest]:.1%}."
        )
    if "gdstar" in hit and pushing:
        best = max(pushing, key=pushing.__getitem__)
        traffic = {
            str(a["policy"]): int(str(a["fetched_pages"])) + int(str(a["pushed_pages_needed"])) for a in here
        }
        told.append(
            f"It costs {traffic[best] / max(1, traffic['gdstar']):.2f} times the pages that gdstar moves "
            "when pages are pushed only where the cache will store them."
        )
    if "pfoo-l-push" in hit and live:
        best = max(live, key=live.__getitem__)
        told.append(
            f"No policy at all could pass {hit['pfoo-l-push']:.1%} at this size; {best} leaves "
            f"{hit['pfoo-l-push'] - live[best]:.1%} on the table."
        )
    return told
