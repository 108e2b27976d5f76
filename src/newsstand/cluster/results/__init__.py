"""Results: streams, subscriptions and the outbox of brokers, in SQLite or PostgreSQL."""
