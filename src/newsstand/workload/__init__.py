"""Traces on Spark: generated as in the papers, or read from what people have."""
