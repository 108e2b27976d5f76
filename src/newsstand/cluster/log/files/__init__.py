"""The ingest log in files."""
