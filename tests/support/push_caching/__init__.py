"""Small worlds of push-caching."""
