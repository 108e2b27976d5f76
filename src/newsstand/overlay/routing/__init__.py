"""Routing tables of the overlay."""
