"""Traces on Spark: generated as in the papers, or imported from logs."""
