"""Policies of result caches that Uddin & Venkatasubramanian (2018) do not have.

`ttl` keeps to the budget only on average, and measures growth in one window, which is never typical. `lscz` looks
at tails only, and what is large stands in the way of what is small. What it is worth to mend that is told in
docs/reference/result-policies.md.
"""

from __future__ import annotations

from newsstand.caching.bad2018 import RESULT_POLICIES, ResultPolicy, lsc, lscz

_POLICIES = (
    ResultPolicy(
        "ttl-bounded",
        "TTL within the budget: a tail leaves when it expires, or is the next to expire and there is no room.",
        expires=True,
        bounded=True,
    ),
    ResultPolicy(
        "ttl-ewma",
        "TTL within the budget, its rates averaged over all windows, the latest counting for a quarter.",
        expires=True,
        bounded=True,
        averages=True,
    ),
    ResultPolicy(
        "lscz-any",
        "LSCz over all objects, not tails: fewest waiting subscribers per byte, so large ones may not even stay.",
        score=lscz,
        anywhere=True,
    ),
    ResultPolicy(
        "adaptive",
        "Adaptive: LSC, LSCz over all objects or bounded TTL, whichever has hit most in the last minutes.",
        score=lsc,
        follows=("lsc", "lscz-any", "ttl-bounded"),
    ),
)

for _policy in _POLICIES:
    RESULT_POLICIES.add(_policy)

BEYOND = tuple(policy.name for policy in _POLICIES)
"""Their names."""
