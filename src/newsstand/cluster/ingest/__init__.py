"""Ingestion: schemas, validation, publications and the latest record of each key."""
