"""Oracles, traces and vectors for cache policies."""
