"""Coordinators under test."""
