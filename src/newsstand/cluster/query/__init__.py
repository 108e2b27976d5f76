"""Channel queries: parsing, checking and rewriting."""
