"""Reproduction of bad2018."""
