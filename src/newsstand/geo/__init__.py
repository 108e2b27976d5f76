"""Locations, distances and networks on the globe."""
