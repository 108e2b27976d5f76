"""Replay of broker events."""
