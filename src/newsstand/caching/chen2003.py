"""The scoring functions of Chen, LaPaugh & Singh, "Content Distribution for Publish/Subscribe Services" (2003).

The fetching cost c is 1 everywhere: with one publisher it scales every score of a proxy alike.
The paper's dual strategies combine `gdstar` and `sub`; they live in `dual.py`.
"""

from newsstand.caching.policy import Entry, balance, policy


@policy("gdstar", inflates=True)
def gdstar(e: Entry) -> float:
    """GD*: access-time caching by frequency, size and recency (section 3.1, equation 1)."""
    return e.inflation + balance(e.accesses / e.size, e.beta)


@policy("sub", push="by-value", miss="ignore", rescores=False)
def sub(e: Entry) -> float:
    """SUB: push-time placement by matching subscriptions per byte (section 3.2, equation 2)."""
    return e.subscriptions / e.size


@policy("sg1", push="by-value", miss="by-value", inflates=True)
def sg1(e: Entry) -> float:
    """SG1: GD* over subscriptions plus requests (section 3.3, equation 3)."""
    return e.inflation + balance((e.subscriptions + e.requests) / e.size, e.beta)


@policy("sg2", push="by-value", miss="by-value", inflates=True)
def sg2(e: Entry) -> float:
    """SG2: GD* over the requests still to come, subscriptions less requests (section 3.3, equation 4)."""
    return e.inflation + balance(max(0, e.subscriptions - e.requests) / e.size, e.beta)


@policy("sr", push="by-value", miss="by-value")
def sr(e: Entry) -> float:
    """SR: the requests still to come per byte, without recency (section 3.3, equation 5)."""
    return max(0, e.subscriptions - e.requests) / e.size
