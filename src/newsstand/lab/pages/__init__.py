"""Replay of page traces."""
