"""Subscribers of a broker: sessions, scopes and their durable state."""
