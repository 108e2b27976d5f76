"""The push-caching workload."""
