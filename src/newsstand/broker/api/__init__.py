"""The HTTP API of a broker."""
