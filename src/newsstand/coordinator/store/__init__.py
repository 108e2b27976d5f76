"""The durable store of the coordinator."""
