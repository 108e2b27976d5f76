"""Clients under test."""
