"""Topics at a broker: publishing, history, replicas and caches.

`TopicService` connects the parts. It drives a `CachingBroker`, the pure state machine of the overlay, and performs
its effects: messages go to `links`, publications to sessions of clients, answers to `HistoryReader`.

    session, api ── TopicService ──┬── TopicPublisher  publications until a storage confirms them
                                   ├── HistoryReader   storages, then caches (CacheReader)
                                   ├── TopicReplicas   topics that this broker stores
                                   ├── KnownStorages   topics with a storage, reachable or not
                                   └── PeerQueries     cache requests of neighbours
"""
