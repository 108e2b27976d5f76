"""Filters on the attributes of messages."""
