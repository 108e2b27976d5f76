"""Simulation of push-caching."""
