"""Reproduction of survival2011."""
