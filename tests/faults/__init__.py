"""A real platform under random kills and pauses, and an independent recomputation of what it promised."""
