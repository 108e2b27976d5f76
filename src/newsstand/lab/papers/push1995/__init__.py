"""Reproduction of push1995."""
