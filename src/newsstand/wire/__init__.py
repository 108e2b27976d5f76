"""Messages and JSON shapes that processes of the platform exchange, each defined once for both sides."""
