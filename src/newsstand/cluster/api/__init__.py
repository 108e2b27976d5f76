"""The HTTP API of the data cluster."""
