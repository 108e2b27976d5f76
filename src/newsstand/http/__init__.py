"""HTTP: the protocol, limits, bodies, errors, logs and metrics of every server, and one client."""
