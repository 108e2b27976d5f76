"""Reproduction of storage2011."""
