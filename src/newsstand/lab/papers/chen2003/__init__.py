"""Reproduction of chen2003."""
