"""Results at a broker: caches, pulls and reads."""
