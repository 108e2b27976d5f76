"""A policy of your own, in one function.

    newsstand simulate my-trace --policy-file examples/my_policy.py --policy head-start sg2 gdstar

`head-start` keeps what is asked for often and is small, as many web caches do, but a page does not begin at
nothing: every subscription that matches it counts as one request that has already been made. So a page that
many readers wait for is worth keeping from the moment it is pushed, and a page that nobody subscribes to has to
earn its place by being asked for.

The words beside the name say when the score decides. `push="by-value"` takes a pushed page in if it fits, or if
pages that score less make room for it; `miss="by-value"` does the same for a page that was asked for and not
there. The function itself looks at one entry and nothing else: no clock, no other pages. It runs as it stands in
a live broker and is compiled as it stands for replay, so write arithmetic, not objects.
"""

import math

from newsstand.caching import Entry, policy


@policy("head-start", push="by-value", miss="by-value")
def head_start(e: Entry) -> float:
    """Head start: subscriptions plus requests over the square root of the size."""
    return (e.subscriptions + e.requests) / math.sqrt(e.size)
