"""Traces: tables, validation, sources and the writer."""
