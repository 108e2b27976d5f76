"""Authentication: signatures, credentials, tokens, passwords and signed URLs."""
