"""The overlay broker as a pure state machine, without sockets and without a clock.

Three classes add one paper mechanism each; a hook of the base calls the next class:

    OverlayBroker       subscriptions, advertisements, requests    Sourlas et al. 2011, sections 3 and 4
        ^               hooks: `_serve`, `_on_forward`, `_next_hops`
    ReplicatingBroker   storages of a topic find and compare each other; `_serve` is deferred to the caller
        ^
    CachingBroker       opportunistic caches: `_on_forward` caches, `_next_hops` floods; requests to caches

Every method takes an event and returns a list of `Effect`; the caller performs them.
"""
