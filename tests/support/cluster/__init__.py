"""Data clusters under test, and the contracts of their stores and logs."""
