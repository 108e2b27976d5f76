"""Replay, experiments, claims, figures and advice."""
