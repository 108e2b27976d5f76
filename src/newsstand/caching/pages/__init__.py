"""Page caches and their policies."""
