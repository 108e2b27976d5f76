"""Geographical push-caching (Gwertzman and Seltzer 1995): origins, push-caches and clients."""
