"""WebSocket connections of subscribers."""
