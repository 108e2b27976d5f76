"""Simulation of survival times."""
