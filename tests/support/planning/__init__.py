"""Small problems of planning, and plain solutions."""
