"""Reproduction of the five papers."""
