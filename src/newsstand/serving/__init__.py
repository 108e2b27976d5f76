"""What every server of the platform does the same way: errors, bodies, request log, start and stop."""
