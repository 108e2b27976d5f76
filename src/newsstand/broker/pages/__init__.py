"""Pages at a broker: caches, fetches and redirects.

`PageResolver` answers from `MatchCache` (chen2003) or `PushCacheService` (push1995), else from another broker
(`RedirectTable`), the cluster, or a server outside the platform (`PageFetcher`).
"""
