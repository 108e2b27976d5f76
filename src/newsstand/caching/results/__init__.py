"""Result caches and their policies."""
