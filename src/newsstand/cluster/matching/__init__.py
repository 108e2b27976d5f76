"""Matching: scheduling and executing channels on Spark."""
