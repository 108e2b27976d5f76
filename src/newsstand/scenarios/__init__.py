"""Scenarios that can be played against a platform."""
