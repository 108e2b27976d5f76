"""Policies that know the future: not to run, but to compare with. The replays are in `kernels/offline.py`."""

from newsstand.caching.policy import POLICIES, Policy

POLICIES.add(
    Policy("belady-size", "Belady-Size: the largest size x distance to the next request leaves.", offline=True)
)
POLICIES.add(
    Policy("pfoo-l", "PFOO-L: a bound on the hits of access-time caching (Berger et al. 2018).", offline=True)
)
POLICIES.add(
    Policy("pfoo-l-push", "PFOO-L with pushes: a bound on the hits of any policy.", uses_push=True, offline=True)
)
