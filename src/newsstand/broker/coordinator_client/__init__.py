"""The broker's side of the coordinator: registration, heartbeats and changes."""
