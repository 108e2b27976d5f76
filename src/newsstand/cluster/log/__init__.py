"""The ingest log: its contract and its implementations."""
