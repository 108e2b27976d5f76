"""Where to put storages, what to keep in them, and when to move it."""
