"""Planning of storages, of the topics that they keep, and of reassignments."""
