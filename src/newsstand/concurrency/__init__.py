"""Back-off, single flight, batching, background loops and rate limits."""
