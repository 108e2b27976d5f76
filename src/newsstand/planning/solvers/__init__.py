"""Algorithms that plan storages and assign topics."""
