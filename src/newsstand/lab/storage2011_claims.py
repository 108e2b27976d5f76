"""The claims of Sourlas et al. (2011, section 6, abstract, conclusion), each with its measurement and verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from newsstand.lab import storage2011_single_claims as of_their_own
from newsstand.lab.claims import Claim, judged
from newsstand.lab.storage2011_kinds import Trend, Within, over, over_replanned
from newsstand.lab.storage2011_measured import Measured
from newsstand.lab.storage2011_plans import PAPER

TURNS = (
    "By turns, the heavier topics lose more than the lighter ones gain, and the heaviest, which is to be kept by "
    "every storage, finds some full; with much room both assign alike"
)
FULL = (
    "Replicas fill all room, SC·M, so that topics have little to choose from, and what one gets, another does not"
)
ELSEWHERE = "Storages that were chosen for other neighbourhoods cannot be made up for by assignment"
WHY = {
    "6.1.1-grd": "Where SC is small, topics that choose late find the brokers that suit them full; grd_opt has no "
    "such limit",
    "6.1.1-wrr-srl-better": TURNS,
    "6.1.1-wrr-srl": TURNS,
    "Fig7-rnd": FULL,
    "Fig7-rnd-range": FULL,
    "Fig7-grd": FULL,
    "Fig8-four-times": "With M = 20 there are about as many replicas as brokers that ask, so that grd_opt has "
    "next to no hops; with M = 10 it has half as many",
    "Fig8-storages": "Neighbourhoods overlap",
    "6.1.2-hops": "How far brokers are apart depends on the kind of tree",
    "6.2-replanned": ELSEWHERE,
    "6.2-replanned-conclusion": ELSEWHERE,
}
"""Why a claim does not hold, where it does not, as far as we can tell."""


def claims(measured: Measured) -> list[Claim]:
    """Every claim that the experiment allows to judge, in the paper's order."""
    return judged(CLAIMS, measured, WHY)


CLAIMS: Sequence[Callable[[Measured], list[Claim]]] = (
    Within(
        "6.1.1-rnd",
        "The proposed algorithm is better than rnd in Figs. 4 to 6.",
        "better",
        (4, 5, 6),
        over("rnd"),
        high=0,
        strict=True,
    ).judged,
    Within("6.1.1-rnd-range", "By 5 to 25 %.", "5 to 25 %", (4, 5, 6), over("rnd"), -0.25, -0.05).judged,
    Within(
        "6.1.1-grd",
        "It is less than 10 % worse than grd_opt.",
        "below 10 %",
        (4, 5, 6),
        over("grd_opt"),
        high=0.10,
    ).judged,
    Within(
        "6.1.1-wrr-srl-better",
        "wrr is better than srl in every experiment.",
        "better",
        (4, 5, 6),
        over("srl"),
        high=0,
        methods=("wrr",),
        strict=True,
    ).judged,
    Within(
        "6.1.1-wrr-srl",
        "By 4 to 17 %.",
        "4 to 17 %",
        (4, 5, 6),
        over("srl"),
        -0.17,
        -0.04,
        methods=("wrr",),
    ).judged,
    *(
        Trend(
            f"Fig4-{name}", f"{name.capitalize()} grow with the network.", "increase", 4, what, True, (*PAPER,)
        ).judged
        for what, name in (("mean_hops", "hops"), ("traffic", "traffic"))
    ),
    of_their_own.slower,
    Trend(
        "Fig5-hops",
        "The more a storage holds, the fewer hops with srl, wrr and rnd.",
        "smaller",
        5,
        "mean_hops",
        False,
        ("srl", "wrr", "rnd"),
    ).judged,
    Trend("Fig6-hops", "The larger min k, the fewer hops.", "decreasing", 6, "mean_hops", False, (*PAPER,)).judged,
    of_their_own.same_form,
    Within(
        "Fig7-rnd",
        "When popularity varies, the proposed algorithm is better than rnd.",
        "better",
        (7,),
        over("rnd"),
        high=0,
        strict=True,
    ).judged,
    Within("Fig7-rnd-range", "By 10 to 25 %.", "10 to 25 %", (7,), over("rnd"), -0.25, -0.10).judged,
    Within(
        "Fig7-grd", "It is less than 9 % worse than grd_opt.", "below 9 %", (7,), over("grd_opt"), high=0.09
    ).judged,
    of_their_own.four_times,
    of_their_own.storages,
    of_their_own.hops,
    Within(
        "abstract",
        "Apart from Fig. 8, the proposed algorithm is at most 15 % worse than grd_opt.",
        "1 to 15 %",
        (4, 5, 6, 7),
        over("grd_opt"),
        high=0.15,
    ).judged,
    of_their_own.up_to_55,
    Within(
        "6.2-replanned",
        "Assigning anew is less than 8 % worse than planning anew, too.",
        "below 8 %",
        (9, 10),
        over_replanned,
        high=0.08,
    ).judged,
    Within(
        "6.2-replanned-conclusion",
        "Or less than 10 %, as the conclusion has it.",
        "below 10 %",
        (9, 10),
        over_replanned,
        high=0.10,
    ).judged,
    Within(
        "6.2-popularity",
        "When s_p has changed by up to 50 %, assigning anew spares less than 10 %.",
        "below 10 %",
        (9,),
        Measured.gain,
        high=0.10,
        where=lambda s: -1 < s <= -0.5,
    ).judged,
    Within(
        "6.2-locality",
        "When s_l has changed by more than 25 %, it spares at least 15 %.",
        "at least 15 %",
        (10,),
        Measured.gain,
        low=0.15,
        where=lambda s: s > -0.75,
    ).judged,
)
"""In the paper's order."""
