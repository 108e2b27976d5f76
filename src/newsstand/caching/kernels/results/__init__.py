"""Compiled replay of result caches."""
