"""The dashboard under test, in a browser."""
