"""Brokers under test, and what they talk to."""
